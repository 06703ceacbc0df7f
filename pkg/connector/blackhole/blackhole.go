package blackhole

import "github.com/weirstream/weir/pkg/operator"

// Sink drops every record.
func Sink[T any]() operator.Sink[T] { return sink[T]{} }

type sink[T any] struct{}

// OpenWriter implements operator.Sink.
func (s sink[T]) OpenWriter(*operator.Context) (operator.SinkWriter[T], error) { return s, nil }

// Describe implements operator.Sink.
func (sink[T]) Describe() operator.Description {
	return operator.Description{Options: map[string]string{"connector": "blackhole.Sink"}}
}

// Write implements operator.SinkWriter.
func (sink[T]) Write(T) error { return nil }

// Flush implements operator.SinkWriter.
func (sink[T]) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (sink[T]) Close() error { return nil }
