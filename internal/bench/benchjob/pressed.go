package main

import (
	"encoding/binary"
	"time"

	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/stream"
)

// pressed is a source of 100-byte records that is as fast as it may, and a sink
// that takes its time: all channels between them are full.
func pressed(env *stream.Env) error {
	numbers := stream.From(env, "numbers", payloads{n: *records}, stream.WithParallelism(1))
	byNumber := stream.KeyBy(numbers, func(v payload) uint64 { return binary.LittleEndian.Uint64(v.Data[:]) })
	spread := stream.KeyBy(stream.Map(byNumber.Stream(), func(v payload) (payload, error) { return v, nil }),
		func(v payload) uint64 { return binary.LittleEndian.Uint64(v.Data[:]) >> 8 })
	stream.To(spread.Stream(), "out", slowSink{})
	return nil
}

// slowSink takes -delay for each record.
type slowSink struct{}

// OpenWriter implements operator.Sink.
func (slowSink) OpenWriter(*operator.Context) (operator.SinkWriter[payload], error) {
	return slowWriter{}, nil
}

// Describe implements operator.Sink.
func (slowSink) Describe() operator.Description { return operator.Description{} }

type slowWriter struct{}

// Write implements operator.SinkWriter.
func (slowWriter) Write(payload) error {
	<-time.After(*delay)
	return nil
}

// Flush implements operator.SinkWriter.
func (slowWriter) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (slowWriter) Close() error { return nil }
