// Command kinds is a job that keeps every kind of state there is and whose
// output is a function of its input, whatever fails, and however often it is
// stopped and started at another parallelism.
//
// Its input is cut into splits, and every key belongs to one of them, so that
// the records of a key come in order: n = 0, 1, 2, … The operators fail for
// good when a key's next record is not the one that its state expects. The
// lines of the output, by their kind:
//
//   - running: one for each record, with what the key's states hold then
//   - window: one for each key and window of event time, by a timer
//   - tick: from timers of processing time; each key has tick 0, 1, 2, … to some number
//   - split, union: how many lines an operator without keys has passed on, by its operator state
//   - rule, keyed-rule: what the broadcast state of each subtask holds at the end
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	splits  = flag.Uint64("splits", 4, "cut the input into `N` splits")
	keys    = flag.Uint64("keys", 10, "use `N` keys in each split")
	rounds  = flag.Uint64("rounds", 100, "give each key `N` records")
	rate    = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	ballast = flag.Int("ballast", 0, "keep `N` bytes more for each key")
	rules   = flag.Uint64("rules", 200, "broadcast `N` changes of rules")
	output  = flag.String("output", "kinds-output", "write lines to files in `DIR`")

	sources = flag.Int("source-parallelism", 0, "read in `N` subtasks, 0 for the job's default")
	keyed   = flag.Int("keyed-parallelism", 0, "keep keyed state in `N` subtasks, 0 for the job's default")
	plain   = flag.Int("plain-parallelism", 0, "keep operator state in `N` subtasks, 0 for the job's default")
	sinks   = flag.Int("sink-parallelism", 0, "write in `N` subtasks, 0 for the job's default")
)

const (
	// step is the event time between two records of a key, in milliseconds.
	step = 1000
	// window is the length of a window: four records of each key.
	window = 4 * step
	// never is how far behind a record the timer is that the next one deletes.
	never = 1000 * window
	// ruleNames is how many rules there are.
	ruleNames = 7
	// elementLines is how many lines an element of the split list counts.
	elementLines = 50
)

// Event is a record: the n-th of its key.
type Event struct {
	Key, N uint64
}

// Line is a line of the output.
type Line struct {
	Kind string `json:"kind"`
	Key  uint64 `json:"key,omitempty"`
	N    uint64 `json:"n,omitempty"`
	// Count to Distinct are what the key's states hold.
	Count    uint64 `json:"count,omitempty"`
	Sum      uint64 `json:"sum,omitempty"`
	Max      uint64 `json:"max,omitempty"`
	Mean     uint64 `json:"mean,omitempty"`
	Distinct uint64 `json:"distinct,omitempty"`
	// Subtask and Name say whose operator state it is.
	Subtask uint64 `json:"subtask,omitempty"`
	Name    string `json:"name,omitempty"`
}

// event makes record i: the keys of a split take turns.
func event(i uint64) Event {
	each := max(*keys**rounds, 1)
	split, at := i/each, i%each
	return Event{Key: split**keys + at%max(*keys, 1), N: at / max(*keys, 1)}
}

func main() {
	stream.Main("kinds", func(env *stream.Env) error {
		parallelism := func(n int) (options []stream.Option) {
			if n > 0 {
				options = append(options, stream.WithParallelism(n))
			}
			return options
		}
		events := stream.From(env, "events", datagen.Generate(*splits**keys**rounds, event,
			datagen.WithRate(*rate), datagen.WithSplits(int(*splits))), parallelism(*sources)...)
		timed := stream.AssignTimestamps(events, "time", func(e Event) int64 { return int64(e.N) * step }, parallelism(*sources)...)
		changes := stream.From(env, "rules", datagen.Sequence(*rules, datagen.WithRate(*rate/4), datagen.WithSplits(1)), stream.WithParallelism(1))

		byKey := stream.KeyBy(timed, func(e Event) uint64 { return e.Key })
		lines := stream.Process(byKey, "kinds", newKinds, parallelism(*keyed)...)
		ruled := stream.ConnectKeyedBroadcast(stream.KeyBy(lines, func(l Line) uint64 { return l.Key }), changes, "ruled", newRuled, parallelism(*keyed)...)
		passed := stream.ConnectBroadcast(ruled, changes, "passed", newPassed, parallelism(*plain)...)
		stream.To(passed, "out", file.ExactlyOnce[Line](*output), parallelism(*sinks)...)
		return nil
	})
}

// Mean is the accumulator of the mean.
type Mean struct{ Count, Sum uint64 }

type mean struct{}

func (mean) Start() Mean { return Mean{} }

func (mean) Add(acc *Mean, v uint64) error {
	acc.Count++
	acc.Sum += v
	return nil
}

func (mean) Result(acc *Mean) (uint64, error) { return acc.Sum / acc.Count, nil }

// weight is what a record counts for: it rises and falls.
func weight(e Event) uint64 { return (e.N*e.N*31 + e.Key*17) % 1009 }

// kinds has every kind of keyed state, and timers.
type kinds struct {
	count    state.Value[uint64]
	list     state.List[uint64]
	distinct state.Map[uint64, uint64]
	windows  state.Map[int64, Mean]
	max      *state.Reducing[uint64]
	mean     *state.Aggregating[uint64, Mean, uint64]
	long     state.Value[uint64]
	short    state.Value[int64] // the processing time at which it was written
	touched  state.Value[int64] // the same, for ever
	ticks    state.Value[uint64]
	due      state.Value[int64]
	ballast  state.Value[[]byte]
}

func newKinds() *kinds { return &kinds{} }

// shortTTL expires during every test, longTTL in none.
const (
	shortTTL = 700 * time.Millisecond
	longTTL  = 24 * time.Hour
	// slack is how long the function may take between reading the clock and
	// writing a value: the time-to-live is counted from when that is written.
	slack = 5 * time.Second
)

// Open registers the states.
func (k *kinds) Open(ctx *stream.Context[uint64]) (err error) {
	add := func(e error) { err = firstOf(err, e) }
	var e error
	k.count, e = state.NewValue[uint64](ctx, "count")
	add(e)
	k.list, e = state.NewList[uint64](ctx, "list")
	add(e)
	k.distinct, e = state.NewMap[uint64, uint64](ctx, "distinct")
	add(e)
	k.windows, e = state.NewMap[int64, Mean](ctx, "windows")
	add(e)
	k.max, e = state.NewReducing(ctx, "max", func(sofar, v uint64) (uint64, error) { return max(sofar, v), nil })
	add(e)
	k.mean, e = state.NewAggregating(ctx, "mean", mean{})
	add(e)
	k.long, e = state.NewValue[uint64](ctx, "long", state.WithTTL(longTTL, state.OnReadAndWrite))
	add(e)
	k.short, e = state.NewValue[int64](ctx, "short", state.WithTTL(shortTTL))
	add(e)
	k.touched, e = state.NewValue[int64](ctx, "touched")
	add(e)
	k.ticks, e = state.NewValue[uint64](ctx, "ticks")
	add(e)
	k.due, e = state.NewValue[int64](ctx, "due")
	add(e)
	k.ballast, e = state.NewValue[[]byte](ctx, "ballast")
	add(e)
	return err
}

func firstOf(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Process adds a record to every state of its key.
func (k *kinds) Process(ctx *stream.Context[uint64], e Event, out stream.Collector[Line]) error {
	count, _, err := k.count.Get()
	if err != nil {
		return err
	}
	if count != e.N {
		return operator.Permanentf("key %d: record %d comes when %d have come", e.Key, e.N, count)
	}
	if err := k.count.Set(count + 1); err != nil {
		return err
	}
	line := Line{Kind: "running", Key: e.Key, N: e.N, Count: count + 1}
	if err := k.accumulate(e, &line); err != nil {
		return err
	}
	if err := k.checkTTL(e); err != nil {
		return err
	}
	if err := k.setTimers(ctx, e); err != nil {
		return err
	}
	if e.N == 0 && *ballast > 0 {
		content := make([]byte, *ballast)
		random := rand.New(rand.NewPCG(e.Key, 1)) // the store must not be able to compress it
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		if err := k.ballast.Set(content); err != nil {
			return err
		}
	}
	return out.Collect(line)
}

// accumulate fills list, maps, reducing and aggregating state, and the line from them.
func (k *kinds) accumulate(e Event, line *Line) error {
	w := weight(e)
	if err := k.list.Add(w); err != nil {
		return err
	}
	if e.N%8 == 7 {
		if err := k.list.Set([]uint64{w}); err != nil { // lists stay short
			return err
		}
	}
	elements, err := k.list.Get()
	if err != nil {
		return err
	}
	for i, v := range elements {
		line.Sum += uint64(i+1) * v // order counts
	}
	n, _, err := k.distinct.Ref(w % 13)
	if err != nil {
		return err
	}
	*n++
	if w%13 == 5 {
		if err := k.distinct.Remove(w % 13); err != nil {
			return err
		}
	}
	entries, err := k.distinct.Len()
	if err != nil {
		return err
	}
	line.Distinct = uint64(entries)
	if err := k.max.Add(w); err != nil {
		return err
	}
	if line.Max, _, err = k.max.Get(); err != nil {
		return err
	}
	if err := k.mean.Add(w); err != nil {
		return err
	}
	line.Mean, _, err = k.mean.Get()
	return err
}

// checkTTL fails when a value that must be there is not, or the reverse.
func (k *kinds) checkTTL(e Event) error {
	long, found, err := k.long.Get()
	if err != nil {
		return err
	}
	if long != e.N || found != (e.N > 0) {
		return operator.Permanentf("key %d, record %d: the value that lives for %v is %d, %v", e.Key, e.N, longTTL, long, found)
	}
	if err := k.long.Set(e.N + 1); err != nil {
		return err
	}
	// Not ctx.ProcessingTime, which stands still for a run of records.
	now := time.Now().UnixMilli()
	touched, isTouched, err := k.touched.Get()
	if err != nil {
		return err
	}
	short, found, err := k.short.Get()
	if err != nil {
		return err
	}
	age := time.Duration(now-touched) * time.Millisecond
	switch {
	case found && short != touched:
		return operator.Permanentf("key %d, record %d: the value that lives for %v is of %d, the last one of %d", e.Key, e.N, shortTTL, short, touched)
	case found && age > shortTTL+slack:
		return operator.Permanentf("key %d, record %d: a value that lives for %v is there after %v", e.Key, e.N, shortTTL, age)
	case found:
		return nil
	}
	if age := time.Duration(time.Now().UnixMilli()-touched) * time.Millisecond; isTouched && age < shortTTL {
		return operator.Permanentf("key %d, record %d: a value that lives for %v is gone after %v", e.Key, e.N, shortTTL, age)
	}
	if err := k.touched.Set(now); err != nil {
		return err
	}
	return k.short.Set(now)
}

// setTimers sets the timer of the window's end, one of processing time if
// none is due, and one that the next record deletes.
func (k *kinds) setTimers(ctx *stream.Context[uint64], e Event) error {
	at := int64(e.N) * step
	start := at - at%window
	w, _, err := k.windows.Ref(start)
	if err != nil {
		return err
	}
	w.Count++
	w.Sum += weight(e)
	if err := ctx.Timers().RegisterEventTime(start + window); err != nil {
		return err
	}
	if e.N%2 == 0 {
		// The last record leaves none, for the number of rounds is even.
		if err := ctx.Timers().RegisterEventTime(at + never + 1); err != nil {
			return err
		}
	} else if err := ctx.Timers().DeleteEventTime(at - step + never + 1); err != nil {
		return err
	}
	due, _, err := k.due.Get()
	if err != nil || due != 0 {
		return err
	}
	due = ctx.ProcessingTime() + 20
	if err := k.due.Set(due); err != nil {
		return err
	}
	return ctx.Timers().RegisterProcessingTime(due)
}

// OnTimer writes a window or a tick.
func (k *kinds) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Line]) error {
	if t.Domain == stream.ProcessingTime {
		return k.tick(ctx, t, out)
	}
	w, found, err := k.windows.Get(t.Time - window)
	if err != nil {
		return err
	}
	if !found {
		return operator.Permanentf("key %d: timer %d is of no window: it was deleted, or has been fired before", ctx.Key(), t.Time)
	}
	if err := k.windows.Remove(t.Time - window); err != nil {
		return err
	}
	return out.Collect(Line{Kind: "window", Key: ctx.Key(), N: uint64(t.Time/window - 1), Count: w.Count, Sum: w.Sum})
}

func (k *kinds) tick(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Line]) error {
	due, _, err := k.due.Get()
	if err != nil {
		return err
	}
	if due != t.Time || ctx.ProcessingTime() < due {
		return operator.Permanentf("key %d: timer %d is fired at %d when %d is due", ctx.Key(), t.Time, ctx.ProcessingTime(), due)
	}
	if err := k.due.Set(0); err != nil {
		return err
	}
	n, _, err := k.ticks.Get()
	if err != nil {
		return err
	}
	if err := k.ticks.Set(n + 1); err != nil {
		return err
	}
	return out.Collect(Line{Kind: "tick", Key: ctx.Key(), N: n})
}

// ruleName is the rule that a change is of.
func ruleName(change uint64) string { return fmt.Sprintf("rule-%d", change%ruleNames) }

// change counts a change of a rule in broadcast state.
func change(side *state.BroadcastSide, to *state.Broadcast[string, uint64], n uint64) error {
	// Those of one rule come in order, so that any that is lost or doubled is seen.
	count, _, err := to.Get(ruleName(n))
	if err != nil {
		return err
	}
	if count != n/ruleNames {
		return operator.Permanentf("%s: change %d comes when %d have come", ruleName(n), n/ruleNames, count)
	}
	return to.Set(side, ruleName(n), count+1)
}

// emitRules writes what broadcast state holds.
func emitRules(kind string, subtask int, from *state.Broadcast[string, uint64], out stream.Collector[Line]) error {
	return from.Each(func(name string, count uint64) error {
		return out.Collect(Line{Kind: kind, Subtask: uint64(subtask), Name: name, Count: count})
	})
}

// ruled has keyed and broadcast state in one operator.
type ruled struct {
	lines   state.Value[uint64]
	rules   *state.Broadcast[string, uint64]
	subtask int
}

func newRuled() *ruled { return &ruled{} }

// Open registers the states.
func (r *ruled) Open(ctx *stream.Context[uint64]) (err error) {
	r.subtask = ctx.Subtask()
	if r.lines, err = state.NewValue[uint64](ctx, "lines"); err != nil {
		return err
	}
	r.rules, err = state.NewBroadcast[string, uint64](ctx, "rules")
	return err
}

// Process checks that the running lines of a key come one after the other.
func (r *ruled) Process(ctx *stream.Context[uint64], l Line, out stream.Collector[Line]) error {
	if l.Kind == "running" {
		n, _, err := r.lines.Get()
		if err != nil {
			return err
		}
		if n != l.N {
			return operator.Permanentf("key %d: line %d comes when %d have come", ctx.Key(), l.N, n)
		}
		if err := r.lines.Set(n + 1); err != nil {
			return err
		}
	}
	return out.Collect(l)
}

// ProcessBroadcast changes a rule.
func (r *ruled) ProcessBroadcast(side *state.BroadcastSide, n uint64, _ stream.Collector[Line]) error {
	return change(side, r.rules, n)
}

// Finish writes the rules.
func (r *ruled) Finish(out stream.Collector[Line]) error {
	return emitRules("keyed-rule", r.subtask, r.rules, out)
}

// Passed is how many lines one run of a subtask passed on.
type Passed struct {
	// Run tells the runs of subtasks apart.
	Run   uint64
	Lines uint64
}

// passed counts lines in operator state.
type passed struct {
	split   *state.OperatorList[uint64]
	union   *state.OperatorList[Passed]
	rules   *state.Broadcast[string, uint64]
	run     uint64
	subtask int
}

func newPassed() *passed { return &passed{run: rand.Uint64() >> 1} }

// Open registers the states.
func (p *passed) Open(ctx *stream.BroadcastContext) (err error) {
	p.subtask = ctx.Subtask()
	if p.split, err = state.NewSplitList[uint64](ctx, "split"); err != nil {
		return err
	}
	if p.union, err = state.NewUnionList[Passed](ctx, "union"); err != nil {
		return err
	}
	p.rules, err = state.NewBroadcast[string, uint64](ctx, "rules")
	return err
}

// Process counts a line.
func (p *passed) Process(_ *stream.BroadcastContext, l Line, out stream.Collector[Line]) error {
	if l.Kind == "running" {
		counts := p.split.Get()
		if len(counts) == 0 || counts[len(counts)-1] >= elementLines {
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
		p.split.Set(counts)
		p.union.Set(p.count(p.union.Get()))
	}
	return out.Collect(l)
}

// count adds a line to this run's element. Those of earlier runs come from
// every subtask that had them, and one of each is kept.
func (p *passed) count(elements []Passed) []Passed {
	kept, isOwn := elements[:0], false
	seen := map[uint64]bool{}
	for _, e := range elements {
		if seen[e.Run] {
			continue
		}
		seen[e.Run] = true
		if e.Run == p.run {
			e.Lines++
			isOwn = true
		}
		kept = append(kept, e)
	}
	if !isOwn {
		kept = append(kept, Passed{Run: p.run, Lines: 1})
	}
	return kept
}

// ProcessBroadcast changes a rule.
func (p *passed) ProcessBroadcast(side *state.BroadcastSide, n uint64, _ stream.Collector[Line]) error {
	return change(side, p.rules, n)
}

// Finish writes what the operator state holds.
func (p *passed) Finish(out stream.Collector[Line]) error {
	var lines uint64
	for _, n := range p.split.Get() {
		lines += n
	}
	if err := out.Collect(Line{Kind: "split", Subtask: uint64(p.subtask), Count: lines}); err != nil {
		return err
	}
	for _, e := range p.union.Get() {
		if err := out.Collect(Line{Kind: "union", Subtask: uint64(p.subtask), Name: fmt.Sprint(e.Run), Count: e.Lines}); err != nil {
			return err
		}
	}
	return emitRules("rule", p.subtask, p.rules, out)
}
