package stream

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// NoTimestamp is the timestamp of records that have none.
const NoTimestamp int64 = operator.NoTimestamp

// AssignTimestamps gives every record its event time, and makes watermarks
// from it: from here on, operators know how far event time has come. The
// function returns milliseconds since the Unix epoch (time.Time.UnixMilli).
// Best right behind the source, and chained to it: each split then counts by
// itself, and none that has not been read yet is overtaken: a subtask reads its
// splits one after the other, and its watermark begins to rise with the last
// that it has. The UID stays the
// same between versions of the program.
//
// A watermark w promises that no record with a timestamp below w follows; a
// record below it is late. Where streams meet, the lowest watermark counts, so
// a stream without timestamps holds event time back until it ends.
func AssignTimestamps[T any](in Stream[T], uid string, timestamp func(T) int64, options ...Option) Stream[T] {
	if in.env == nil {
		return in
	}
	n, s := in.env.add(graph.TimestampsOperator, uid, true, options)
	if timestamp == nil {
		in.env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	if s.parallelism == nil && len(in.outlets) == 1 {
		n.Parallelism = in.outlets[0].node.Parallelism // so that it can be chained
	}
	connect(in, n, 0)
	n.stamped = true
	o := operator.TimestampsOptions{
		OutOfOrderness: n.millis(in.env, "out-of-orderness", s.outOfOrderness),
		Idleness:       n.millis(in.env, "idleness", s.idleness),
	}
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		return operator.NewTimestamps(timestamp, o, mainOutput[T](out)), nil
	}
	return output(in.env, n, "", outputCodec(in.env, n, s, in.inherited()))
}

// millis puts an option into the graph, and gives it in milliseconds.
func (n *node) millis(e *Env, key string, d *time.Duration) int64 {
	if d == nil {
		return 0
	}
	ms := d.Milliseconds()
	if *d < 0 || *d > 0 && ms == 0 {
		e.fail(fmt.Errorf("%s: %s of %s: it is in whole milliseconds, and not negative", n.describe(), key, *d))
	}
	n.Options = append(n.Options, graph.Option{Key: key, Value: strconv.FormatInt(ms, 10) + " ms"})
	return ms
}

// WithOutOfOrderness says how much earlier than one before it a record of
// AssignTimestamps may be without being late. Without it, timestamps ascend.
func WithOutOfOrderness(d time.Duration) Option {
	return func(s *settings) { s.outOfOrderness = &d }
}

// WithIdleness lets others not wait for the event time of a subtask of
// AssignTimestamps that has had no record for so long. The time in which it
// could not have passed one on does not count. Without it, everybody waits.
func WithIdleness(d time.Duration) Option {
	return func(s *settings) { s.idleness = &d }
}
