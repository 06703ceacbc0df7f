package operator

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// NoTimestamp is the timestamp of records that have none.
const NoTimestamp = watermark.None

// Time is what the operators of one chain know of time. All times are
// milliseconds since the Unix epoch. It belongs to the subtask's goroutine.
type Time struct {
	// Timestamp is the event time of the record or timer that is being
	// processed, NoTimestamp if it has none.
	Timestamp int64
	// Now is processing time as the subtask was last told.
	Now int64
	// Split is the split that a source reads, watermark.NoSplit behind an edge.
	Split int64
	// SplitsWait says that the source has splits that it has not begun to read.
	SplitsWait bool
}

// Timed is an operator that has something to do as time passes. Its methods
// fire one timer after the other until none is due, or until pace says stop,
// and report whether none is left.
type Timed interface {
	// FireEventTime fires what is due at the watermark w.
	FireEventTime(w int64, pace *Pace) (done bool, err error)
	// FireProcessingTime fires what is due at the time in milliseconds.
	FireProcessingTime(now int64, pace *Pace) (done bool, err error)
	// NextProcessingTime is when the next timer is due, if there is one.
	NextProcessingTime() (int64, bool)
}

// WatermarkGenerator is an operator that makes the watermarks for what is
// behind it, in place of those from its input.
type WatermarkGenerator interface {
	// Tick brings watermark and idleness up to date. quiet says that the
	// subtask has waited for input since the last tick all the time.
	Tick(quiet bool)
	// Watermark is the watermark for what is behind the operator.
	Watermark() int64
	// IsIdle reports whether nobody should wait for its watermark.
	IsIdle() bool
}

// timestampBytes is what a record carries more on an edge with timestamps.
const timestampBytes = 8

// stamped is the codec of an edge whose records carry their timestamp.
type stamped[T any] struct {
	codec.Codec[T]
	time *Time
}

// Stamped puts the timestamp of the chain's current record in front of what c
// writes, and takes it from there. t may be nil for what only describes the edge.
func Stamped[T any](c codec.Codec[T], t *Time) codec.Codec[T] { return stamped[T]{c, t} }

// Name implements codec.Codec.
func (s stamped[T]) Name() string { return "timestamp+" + s.Codec.Name() }

// Append implements codec.Codec.
func (s stamped[T]) Append(dst []byte, v *T) []byte {
	return s.Codec.Append(binary.LittleEndian.AppendUint64(dst, uint64(s.time.Timestamp)), v)
}

// Decode implements codec.Codec.
func (s stamped[T]) Decode(src []byte, v *T) (int, error) {
	if len(src) < timestampBytes {
		return 0, fmt.Errorf("%w: %d bytes left, a timestamp has %d", codec.ErrMalformed, len(src), timestampBytes)
	}
	s.time.Timestamp = int64(binary.LittleEndian.Uint64(src))
	n, err := s.Codec.Decode(src[timestampBytes:], v)
	return timestampBytes + n, err
}

// NewStampedInput is NewInput for an edge whose records carry their timestamp.
func NewStampedInput[T any](c codec.Codec[T], next Collector[T], t *Time) Input {
	if p, ok := next.(Prefetcher[T]); ok {
		return &batchInput[T]{codec: Stamped(c, t), next: next, prefetcher: p, time: t}
	}
	return &input[T]{codec: Stamped(c, t), next: next}
}
