package operator

import (
	"context"
	"encoding/binary"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/runtime/watermark"
	"github.com/weirstream/weir/pkg/snapshot"
)

// TimestampsOptions say how the watermarks of NewTimestamps are made. Both
// are milliseconds.
type TimestampsOptions struct {
	// OutOfOrderness is how much earlier than one before it a record may be.
	OutOfOrderness int64
	// Idleness is the time without a record after which nobody waits for this
	// subtask's watermark; 0 for never.
	Idleness int64
}

// NewTimestamps makes the operator that gives records their timestamp and
// makes watermarks from them.
func NewTimestamps[T any](timestamp func(T) int64, o TimestampsOptions, out Collector[T]) Instance {
	t := &timestamps[T]{timestamp: timestamp, out: out, generator: watermark.NewGenerator(o.OutOfOrderness, o.Idleness)}
	return Instance{Operator: t, Inputs: []any{Collector[T](t)}, Generator: t}
}

// Names of the lists in the snapshot of a timestamps operator.
const (
	splitTimesList = "split-times" // ByIndex: the highest timestamp of each split
	timesList      = "times"       // Union: that of subtasks that are not at a source, with their key groups
)

type timestamps[T any] struct {
	Stateless
	timestamp func(T) int64
	out       Collector[T]
	generator *watermark.Generator
	ctx       *Context
	time      *Time
}

// Open implements Operator.
func (t *timestamps[T]) Open(ctx *Context) error {
	t.ctx, t.time = ctx, ctx.Time
	return nil
}

// Collect implements Collector. The timestamp is put back afterwards: others
// may be given the same record next.
func (t *timestamps[T]) Collect(v T) error {
	before := t.time.Timestamp
	stamp := t.timestamp(v)
	if t.generator.Record(t.time.Split, stamp) {
		t.ctx.LeaveIdle()
	}
	t.time.Timestamp = stamp
	err := t.out.Collect(v)
	t.time.Timestamp = before
	return err
}

// Tick implements WatermarkGenerator.
func (t *timestamps[T]) Tick(quiet bool) {
	t.generator.Tick(t.time.Now, t.time.Split, quiet, t.time.SplitsWait)
}

// Watermark implements WatermarkGenerator.
func (t *timestamps[T]) Watermark() int64 { return t.generator.Watermark() }

// IsIdle implements WatermarkGenerator.
func (t *timestamps[T]) IsIdle() bool { return t.generator.Idle() }

// Restore implements Operator.
func (t *timestamps[T]) Restore(_ context.Context, r *Restored) error {
	var times []watermark.SplitTime
	for _, e := range r.Lists[splitTimesList] {
		if len(e.Bytes) != 8 {
			return Permanentf("restore timestamps: the time of split %d has %d bytes, want 8", e.Index, len(e.Bytes))
		}
		times = append(times, watermark.SplitTime{Split: e.Index, Highest: int64(binary.LittleEndian.Uint64(e.Bytes))})
	}
	if list := r.Lists[timesList]; len(list) > 0 {
		highest, err := LowestTime(list, t.ctx.KeyGroups)
		if err != nil {
			return err
		}
		times = append(times, watermark.SplitTime{Split: watermark.NoSplit, Highest: highest})
	}
	t.generator.Restore(times)
	return nil
}

// Freeze implements Operator.
func (t *timestamps[T]) Freeze(element.Barrier) (Frozen, error) {
	f := &frozenTimes{groups: t.ctx.KeyGroups}
	for _, s := range t.generator.Snapshot() {
		if s.Split == watermark.NoSplit {
			f.time = AppendTime(nil, t.ctx.KeyGroups, s.Highest)
			continue
		}
		f.indexes = append(f.indexes, s.Split)
		f.splits = append(f.splits, binary.LittleEndian.AppendUint64(nil, uint64(s.Highest)))
	}
	return f, nil
}

type frozenTimes struct {
	groups  keygroup.Range
	indexes []int64
	splits  [][]byte
	time    []byte
}

// Write implements Frozen.
func (f *frozenTimes) Write(_ context.Context, w SnapshotWriter) error {
	if len(f.splits) > 0 {
		if err := w.List(splitTimesList, snapshot.ByIndex, f.splits, f.indexes); err != nil {
			return err
		}
	}
	if f.time == nil {
		return nil
	}
	return w.List(timesList, snapshot.Union, [][]byte{f.time}, nil)
}

// Release implements Frozen.
func (f *frozenTimes) Release() {}

// AppendTime appends a time of one subtask as an element of a union list, from
// which LowestTime takes what each subtask needs after a rescale.
func AppendTime(dst []byte, groups keygroup.Range, t int64) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(groups.First))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(groups.Last))
	return binary.LittleEndian.AppendUint64(dst, uint64(t))
}

// LowestTime is the lowest of the times of all subtasks that owned one of the
// key groups: at unchanged parallelism the subtask's own. It is
// watermark.None if a key group was nobody's.
func LowestTime(list []ListElement, groups keygroup.Range) (int64, error) {
	lowest, covered := int64(watermark.Max), 0
	for _, e := range list {
		if len(e.Bytes) != 16 {
			return 0, Permanentf("restore times: an element has %d bytes, want 16", len(e.Bytes))
		}
		r := keygroup.Range{
			First: keygroup.Group(binary.LittleEndian.Uint32(e.Bytes)),
			Last:  keygroup.Group(binary.LittleEndian.Uint32(e.Bytes[4:])),
		}
		common, ok := r.Intersect(groups)
		if !ok {
			continue
		}
		covered += common.Len()
		lowest = min(lowest, int64(binary.LittleEndian.Uint64(e.Bytes[8:])))
	}
	if covered < groups.Len() {
		return watermark.None, nil
	}
	return lowest, nil
}
