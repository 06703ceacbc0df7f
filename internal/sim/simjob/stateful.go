package simjob

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// UIDs of the further operators of the stateful job.
const (
	Stamps = "stamps"
	Rules  = "rules"
	Ruled  = "ruled"
)

// Event is a record of the stateful job: number N of a split.
type Event struct{ Split, N uint64 }

func (e Event) id() uint64 { return e.Split<<32 | e.N }

// Kinds of output records of the stateful job, in the top byte of Count.Key.
// Those of 0 are running counts.
const (
	kindShift        = 56
	eventTimer       = 1 << kindShift // N is the time of a timer that fired
	processingTimer  = 2 << kindShift // N is the ID of the record that registered it
	ruledRecord      = 3 << kindShift // N is the ID of a record
	ruleKeys         = 5
	windowMillis     = 1024
	tick             = 64 // event times of records are multiples of it
	outOfOrderness   = tick
	neverFires       = 32 // a timer's time modulo tick: registered and deleted at once
	isDeletedLater   = 16 // the same, plus the split: deleted by the key's next record of the split
	largestKept      = 6
	partEvery        = 16
	processingEvery  = 7
	processingOffset = 3
)

// Time is the event time of a record: ascending, but that every second record
// is overtaken by the one behind it. No two of a split have the same.
func (o Options) Time(split int, n uint64) int64 {
	return tick * int64(2*n+3*(n&1)+7*uint64(split)+1)
}

// nextOfKey is the number of the next record of a split with the same key.
func (o Options) nextOfKey(n uint64) uint64 {
	if o.Keys%7 == 0 {
		return n + o.Keys/7
	}
	return n + o.Keys
}

// timersOf are the timers that a record registers, but for those that it
// deletes again, and the one that it deletes of an earlier record (0 if none).
// With idleness records may be late, so that whether a timer is still there to
// be deleted, or was fired and is there again, would be left to chance: then
// every timer belongs to one record.
func (o Options) timersOf(e Event) (register []int64, deletes int64) {
	t := o.Time(int(e.Split), e.N)
	if e.N%3 == 0 {
		register = append(register, t+5*tick+1+int64(e.Split))
	}
	if o.Idleness > 0 {
		return register, 0
	}
	register = append(register, (t/windowMillis+1)*windowMillis)
	if isDeleted(e.N) {
		register = append(register, o.deletedLater(e.Split, o.nextOfKey(e.N)))
	}
	if step := o.nextOfKey(0); e.N >= step && isDeleted(e.N-step) {
		deletes = o.deletedLater(e.Split, e.N)
	}
	return register, deletes
}

func isDeleted(n uint64) bool { return n%5 == 2 }

// deletedLater is the time of a timer that record n deletes: the watermark
// cannot have come so far, unless the record is late.
func (o Options) deletedLater(split, n uint64) int64 {
	return o.Time(int(split), n) + isDeletedLater + int64(split)
}

// statefulProgram builds the job with every kind of state, with package stream.
func statefulProgram(o Options, world *World) (*operator.Program, error) {
	env := stream.NewEnv("simulated state")
	env.SetMaxParallelism(o.MaxParallelism)
	numbers := stream.From(env, Numbers, eventSource{o: o, world: world, splits: o.Splits, records: o.RecordsPerSplit}, stream.WithParallelism(o.SourceParallelism))
	options := []stream.Option{stream.WithOutOfOrderness(outOfOrderness * time.Millisecond), stream.WithParallelism(o.SourceParallelism)}
	if o.Idleness > 0 {
		options = append(options, stream.WithIdleness(o.Idleness))
	}
	stamped := stream.AssignTimestamps(numbers, Stamps, func(e Event) int64 { return o.Time(int(e.Split), e.N) }, options...)
	key := func(e Event) uint64 { return o.Key(int(e.Split), e.N) }
	keyed := stream.KeyBy(stamped, key)
	var counter *statefulCounter
	counts := stream.Process(keyed, Counts, func() *statefulCounter {
		counter = &statefulCounter{o: o, world: world}
		return counter
	}, stream.WithParallelism(o.CountParallelism))
	rules := stream.From(env, Rules, eventSource{o: o, world: world, first: o.Splits, splits: o.RuleSplits, records: o.RulesPerSplit}, stream.WithParallelism(1))
	var rule *ruler
	ruled := stream.ConnectKeyedBroadcast(keyed, rules, Ruled, func() *ruler {
		rule = &ruler{o: o, world: world}
		return rule
	}, stream.WithParallelism(o.RuledParallelism))
	// Explicitly, since records in flight cannot go on where a change of
	// parallelism makes a forward edge of this.
	stream.To(stream.Union(counts, ruled).Rebalance(), Out, sink{world: world, revocable: o.Revocable}, stream.WithParallelism(o.SinkParallelism))
	p, err := env.Build()
	if err != nil {
		return nil, err
	}
	watch(p, o, world, Counts, func() audited { return counter })
	watch(p, o, world, Ruled, func() audited { return rule })
	return p, nil
}

// eventSource is a source of events: splits that are numbered from first.
type eventSource struct {
	o             Options
	world         *World
	first, splits int
	records       uint64
}

// ListSplits implements operator.Source.
func (s eventSource) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	out := make([][]byte, s.splits)
	for i := range out {
		out[i] = binary.LittleEndian.AppendUint64(nil, uint64(s.first+i))
	}
	return out, true, nil
}

// OpenReader implements operator.Source.
func (s eventSource) OpenReader(_ context.Context, sc operator.SourceContext, split, position []byte) (operator.Reader[Event], error) {
	r := &eventReader{source: s, split: binary.LittleEndian.Uint64(split)}
	if position != nil {
		r.next = positionOf(position)
	}
	s.world.Observer.opened(sc.Context, int(r.split), r.next)
	return r, nil
}

// Describe implements operator.Source.
func (s eventSource) Describe() operator.Description { return operator.Description{Bounded: true} }

type eventReader struct {
	source eventSource
	split  uint64
	next   uint64
}

// Fetch implements operator.Reader.
func (r *eventReader) Fetch(context.Context) (operator.Batch[Event], error) {
	if err := r.source.world.Observer.fails(Fetching); err != nil {
		return nil, err
	}
	if r.next >= r.source.records {
		return nil, io.EOF
	}
	b := &eventBatch{world: r.source.world, split: r.split, next: r.next, end: min(r.next+r.source.o.BatchMax, r.source.records)}
	r.next = b.end
	return b, nil
}

// Close implements operator.Reader.
func (r *eventReader) Close() error { return nil }

type eventBatch struct {
	world     *World
	split     uint64
	next, end uint64
}

// Next implements operator.Batch.
func (b *eventBatch) Next(v *Event) (bool, error) {
	if b.next == b.end {
		return false, nil
	}
	b.world.Observer.record()
	*v = Event{Split: b.split, N: b.next}
	b.next++
	return true, nil
}

// Position implements operator.Batch.
func (b *eventBatch) Position() []byte { return binary.LittleEndian.AppendUint64(nil, b.next) }

// mean is the aggregator of the stateful job.
type mean struct{}

type meanAcc struct{ Sum, N uint64 }

// Start implements state.Aggregator.
func (mean) Start() meanAcc { return meanAcc{} }

// Add implements state.Aggregator.
func (mean) Add(acc *meanAcc, v uint64) error {
	acc.Sum += v
	acc.N++
	return nil
}

// Result implements state.Aggregator.
func (mean) Result(acc *meanAcc) (uint64, error) { return acc.Sum * 1000 / acc.N, nil }

// groupCount is an element of the union list: how many records a key group had.
type groupCount struct {
	Group uint32
	N     uint64
}

// Written is when and where a value with time-to-live was last written, or
// read where that puts off its end.
type Written struct {
	At            int64
	Job           uint64 // number of the job
	Token, Number uint64 // of the attempt
	ID            uint64 // the value
}

// contexts is what states are registered with.
type contexts interface {
	state.Context[uint64]
	state.OperatorContext
}

// counterStates are all states of the counting operator.
type counterStates struct {
	n       state.Value[uint64]
	largest state.List[uint64]        // IDs of the records with the largest, of all
	since   state.Map[uint64, uint64] // by split, records since the last whose N divides by 5
	sum     *state.Reducing[uint64]
	mean    *state.Aggregating[uint64, meanAcc, uint64]
	due     state.Map[int64, []uint64] // IDs, by the processing time of their timer
	fired   state.Value[int64]         // the last timer of event time
	session state.Value[uint64]        // with time-to-live
	visits  state.Map[uint64, uint64]  // with time-to-live, by split
	written state.Value[Written]       // of session
	visited state.Map[uint64, Written] // of visits
	parts   *state.OperatorList[uint64]
	groups  *state.OperatorList[groupCount]
}

func (s *counterStates) open(ctx contexts, o Options) (err error) {
	var modes []state.TTLMode
	if o.OnRead {
		modes = append(modes, state.OnReadAndWrite)
	}
	ttl := state.WithTTL(o.TTL, modes...)
	register := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	register(func() (err error) { s.n, err = state.NewValue[uint64](ctx, "n"); return })
	register(func() (err error) { s.largest, err = state.NewList[uint64](ctx, "largest"); return })
	register(func() (err error) { s.since, err = state.NewMap[uint64, uint64](ctx, "since"); return })
	register(func() (err error) {
		s.sum, err = state.NewReducing(ctx, "sum", func(sofar, v uint64) (uint64, error) { return sofar + v, nil })
		return
	})
	register(func() (err error) { s.mean, err = state.NewAggregating(ctx, "mean", mean{}); return })
	register(func() (err error) { s.due, err = state.NewMap[int64, []uint64](ctx, "due"); return })
	register(func() (err error) { s.fired, err = state.NewValue[int64](ctx, "fired"); return })
	register(func() (err error) { s.session, err = state.NewValue[uint64](ctx, "session", ttl); return })
	register(func() (err error) { s.visits, err = state.NewMap[uint64, uint64](ctx, "visits", ttl); return })
	register(func() (err error) { s.written, err = state.NewValue[Written](ctx, "written"); return })
	register(func() (err error) { s.visited, err = state.NewMap[uint64, Written](ctx, "visited"); return })
	register(func() (err error) { s.parts, err = state.NewSplitList[uint64](ctx, "parts"); return })
	register(func() (err error) { s.groups, err = state.NewUnionList[groupCount](ctx, "groups"); return })
	return err
}

// statefulCounter uses every kind of state and of timer.
type statefulCounter struct {
	counterStates
	o      Options
	world  *World
	place  *stream.Context[uint64]
	groupN map[uint32]uint64 // what the union list has, once settled
}

// Open implements stream.ProcessFunction.
func (c *statefulCounter) Open(ctx *stream.Context[uint64]) error {
	c.place = ctx
	if err := c.open(ctx, c.o); err != nil {
		return err
	}
	if ttl := c.world.BadTTL; ttl != nil {
		// A mistake made on purpose: it compares with whatever the clock says.
		c.session = &rawTTL{inner: c.session, written: c.written, now: ttl, ttl: c.o.TTL.Milliseconds()}
	}
	return nil
}

// Process implements stream.ProcessFunction.
func (c *statefulCounter) Process(ctx *stream.Context[uint64], e Event, out stream.Collector[Count]) error {
	observer := c.world.Observer
	observer.record()
	key := ctx.Key()
	if t := c.o.Time(int(e.Split), e.N); ctx.Timestamp() != t {
		observer.broken("I2", "record %v has timestamp %d, want %d", e, ctx.Timestamp(), t)
	} else if c.o.Idleness == 0 && t < ctx.Watermark() {
		observer.broken("I11", "record %v at %d comes after watermark %d", e, t, ctx.Watermark())
	}
	n, _, err := c.n.Ref()
	if err != nil {
		return err
	}
	*n++
	count := *n
	for _, f := range []func(uint64, Event) error{c.keep, c.touch, c.operatorState, func(_ uint64, e Event) error { return c.register(ctx, e) }} {
		if err := f(key, e); err != nil {
			return err
		}
	}
	return out.Collect(Count{Key: key, N: count})
}

// keep updates the keyed states whose content follows from the records.
func (c *statefulCounter) keep(_ uint64, e Event) error {
	if err := c.largest.Add(e.id()); err != nil {
		return err
	}
	all, err := c.largest.Get()
	if err != nil {
		return err
	}
	if len(all) > largestKept {
		slices.Sort(all)
		if err := c.largest.Set(all[len(all)-largestKept:]); err != nil {
			return err
		}
	}
	if e.N%5 == 0 {
		err = c.since.Remove(e.Split)
	} else {
		var since *uint64
		if since, _, err = c.since.Ref(e.Split); err == nil {
			*since++
		}
	}
	if err != nil {
		return err
	}
	if err := c.sum.Add(e.id()); err != nil {
		return err
	}
	return c.mean.Add(e.N)
}

// touch reads and writes the states with time-to-live and tells what it found.
func (c *statefulCounter) touch(key uint64, e Event) error {
	observer := c.world.Observer
	if observer == nil || observer.Expires == nil {
		return nil
	}
	was, _, err := c.written.Get()
	if err != nil {
		return err
	}
	id, found, err := c.session.Get()
	if err != nil {
		return err
	}
	now := observer.Expires(key, was, id, found)
	if e.N%2 == 0 {
		now.ID = e.id()
		if err := c.session.Set(now.ID); err != nil {
			return err
		}
	} else if found && c.o.OnRead {
		// One that was written in this clock's future is as old as it was.
		now.ID, now.At = id, max(now.At, was.At)
	} else {
		now = was
	}
	if err := c.written.Set(now); err != nil {
		return err
	}
	if was, _, err = c.visited.Get(e.Split); err != nil {
		return err
	}
	if id, found, err = c.visits.Get(e.Split); err != nil {
		return err
	}
	now = observer.Expires(key, was, id, found)
	now.ID = e.id()
	if err := c.visits.Set(e.Split, now.ID); err != nil {
		return err
	}
	return c.visited.Set(e.Split, now)
}

// operatorState adds to the lists of the subtask.
func (c *statefulCounter) operatorState(key uint64, e Event) error {
	if e.N%partEvery == 0 {
		c.parts.Add(e.id())
	}
	if c.groupN == nil {
		c.settle()
	}
	group := uint32(keygroup.OfHash(keys.Hash(&key), c.o.MaxParallelism))
	c.groupN[group]++
	c.writeGroups()
	return nil
}

// settle makes the union list the subtask's own: each group once, with the
// count of the one that had counted furthest, who was its owner.
func (c *statefulCounter) settle() {
	owned := keygroup.RangeOf(c.place.Subtask(), c.place.Parallelism(), c.o.MaxParallelism)
	c.groupN = map[uint32]uint64{}
	for _, g := range c.groups.Get() {
		if owned.Contains(keygroup.Group(g.Group)) {
			c.groupN[g.Group] = max(c.groupN[g.Group], g.N)
		}
	}
	c.writeGroups()
}

func (c *statefulCounter) writeGroups() {
	var all []groupCount
	for g, n := range c.groupN {
		all = append(all, groupCount{g, n})
	}
	slices.SortFunc(all, func(a, b groupCount) int { return int(a.Group) - int(b.Group) })
	c.groups.Set(all)
}

// register registers and deletes timers.
func (c *statefulCounter) register(ctx *stream.Context[uint64], e Event) error {
	timers := ctx.Timers()
	register, deletes := c.o.timersOf(e)
	never := c.o.Time(int(e.Split), e.N) + neverFires
	if err := timers.RegisterEventTime(never); err != nil {
		return err
	}
	for _, t := range append(register, register...) { // the second time changes nothing
		if err := timers.RegisterEventTime(t); err != nil {
			return err
		}
	}
	if deletes != 0 {
		if err := timers.DeleteEventTime(deletes); err != nil {
			return err
		}
	}
	if err := timers.DeleteEventTime(never); err != nil {
		return err
	}
	if e.N%processingEvery != processingOffset {
		return nil
	}
	// Even times stay; the odd one behind is deleted at once.
	at := (ctx.ProcessingTime() + 20 + int64(e.N*37%400)) &^ 1
	if err := timers.RegisterProcessingTime(at | 1); err != nil {
		return err
	}
	if err := timers.RegisterProcessingTime(at); err != nil {
		return err
	}
	if err := timers.DeleteProcessingTime(at | 1); err != nil {
		return err
	}
	all, _, err := c.due.Get(at)
	if err != nil {
		return err
	}
	return c.due.Set(at, append(all, e.id()))
}

// OnTimer implements stream.TimerFunction.
func (c *statefulCounter) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Count]) error {
	observer, key := c.world.Observer, ctx.Key()
	observer.record()
	if t.Domain == stream.ProcessingTime {
		all, found, err := c.due.Get(t.Time)
		switch {
		case err != nil:
			return err
		case !found:
			observer.broken("I12", "processing-time timer %d of key %d fires, which is not due: it was fired or deleted before", t.Time, key)
		case ctx.ProcessingTime() < t.Time:
			observer.broken("I12", "processing-time timer %d of key %d fires at %d", t.Time, key, ctx.ProcessingTime())
		}
		for _, id := range all {
			if err := out.Collect(Count{Key: processingTimer | key, N: id}); err != nil {
				return err
			}
		}
		observer.fired(false)
		return c.due.Remove(t.Time)
	}
	last, found, err := c.fired.Get()
	if err != nil {
		return err
	}
	switch {
	case t.Time%tick == neverFires:
		observer.broken("I12", "event-time timer %d of key %d fires, which was deleted at once", t.Time, key)
	case ctx.Watermark() < t.Time:
		observer.broken("I12", "event-time timer %d of key %d fires at watermark %d", t.Time, key, ctx.Watermark())
	case found && c.o.Idleness == 0 && t.Time <= last:
		observer.broken("I12", "event-time timer %d of key %d fires after %d", t.Time, key, last)
	}
	if err := c.fired.Set(t.Time); err != nil {
		return err
	}
	observer.fired(true)
	return out.Collect(Count{Key: eventTimer | key, N: uint64(t.Time)})
}

// ruler has broadcast state beside a keyed one.
type ruler struct {
	rulerStates
	o     Options
	world *World
}

type rulerStates struct {
	n     state.Value[uint64]
	rules *state.Broadcast[uint64, uint64]
}

func (r *rulerStates) open(ctx contexts) (err error) {
	if r.n, err = state.NewValue[uint64](ctx, "n"); err != nil {
		return err
	}
	r.rules, err = state.NewBroadcast[uint64, uint64](ctx, "rules")
	return err
}

// Open implements stream.KeyedBroadcastFunction.
func (r *ruler) Open(ctx *stream.Context[uint64]) error { return r.open(ctx) }

// Process implements stream.KeyedBroadcastFunction.
func (r *ruler) Process(ctx *stream.Context[uint64], e Event, out stream.Collector[Count]) error {
	r.world.Observer.record()
	n, _, err := r.n.Ref()
	if err != nil {
		return err
	}
	*n++
	if e.N%8 != 0 {
		return nil
	}
	return out.Collect(Count{Key: ruledRecord | ctx.Key(), N: e.id()})
}

// ProcessBroadcast implements stream.KeyedBroadcastFunction.
func (r *ruler) ProcessBroadcast(side *state.BroadcastSide, e Event, _ stream.Collector[Count]) error {
	r.world.Observer.record()
	n, _, err := r.rules.Get(e.N % ruleKeys)
	if err != nil {
		return err
	}
	return r.rules.Set(side, e.N%ruleKeys, n+1)
}

// rawTTL is a value whose time-to-live somebody made himself.
type rawTTL struct {
	inner   state.Value[uint64]
	written state.Value[Written]
	now     func() int64
	ttl     int64
}

// Get implements state.Value.
func (r *rawTTL) Get() (uint64, bool, error) {
	w, found, err := r.written.Get()
	if err != nil || !found || r.now()-w.At >= r.ttl {
		return 0, false, err
	}
	return w.ID, true, nil
}

// Set implements state.Value.
func (r *rawTTL) Set(v uint64) error { return r.inner.Set(v) }

// Clear implements state.Value.
func (r *rawTTL) Clear() error { return r.inner.Clear() }

// Ref implements state.Value.
func (r *rawTTL) Ref() (*uint64, bool, error) { return r.inner.Ref() }
