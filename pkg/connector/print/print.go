package print

import (
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/operator"
)

// Sink prints every record by its String method, or with the names of its fields.
func Sink[T any]() operator.Sink[T] { return sink[T]{} }

// flushBytes bounds what is collected while input keeps coming.
const flushBytes = 32 << 10

type sink[T any] struct{}

// Describe implements operator.Sink.
func (sink[T]) Describe() operator.Description {
	return operator.Description{Options: map[string]string{"connector": "print.Sink"}}
}

// OpenWriter implements operator.Sink.
func (sink[T]) OpenWriter(ctx *operator.Context) (operator.SinkWriter[T], error) {
	out := ctx.Output
	if out == nil { // whoever runs the job shows no output
		out = io.Discard
	}
	return &writer[T]{out: out, prefix: fmt.Sprintf("%s[%d]> ", ctx.Operator, ctx.Index)}, nil
}

// writer collects whole lines: subtasks share the output, and one Write keeps
// a line in one piece.
type writer[T any] struct {
	out    io.Writer
	prefix string
	buf    []byte
}

// Write implements operator.SinkWriter.
func (w *writer[T]) Write(v T) error {
	w.buf = append(w.buf, w.prefix...)
	w.buf = fmt.Appendf(w.buf, "%+v\n", v)
	if len(w.buf) < flushBytes {
		return nil
	}
	return w.Flush()
}

// Flush implements operator.SinkWriter.
func (w *writer[T]) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// Close implements operator.SinkWriter. What the last Flush left is of no checkpoint.
func (w *writer[T]) Close() error { return nil }
