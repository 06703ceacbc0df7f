package simjob

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
)

// UIDs of the job's operators.
const (
	Numbers = "numbers"
	Counts  = "counts"
	Out     = "out"
)

// Count is one output record: the running count of a key.
type Count struct {
	Key uint64
	N   uint64
}

// Mode is how barriers and records pass each other in a job.
type Mode int

// The modes.
const (
	// Aligned is exactly once, by holding channels back.
	Aligned Mode = iota
	// AtLeastOnce holds nothing back: records may come out twice after a restore.
	// Only flows know what that may lead to.
	AtLeastOnce
	// Unaligned is exactly once, with what barriers overtook in the checkpoint.
	Unaligned
	// AlignedTimeout begins aligned and goes on unaligned when that takes long.
	AlignedTimeout

	modes
)

// Modes is the number of modes.
const Modes = int(modes)

// String names the mode.
func (m Mode) String() string {
	switch m {
	case Aligned:
		return "aligned"
	case AtLeastOnce:
		return "at-least-once"
	case Unaligned:
		return "unaligned"
	case AlignedTimeout:
		return "aligned-with-timeout"
	case modes:
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Options size the job.
type Options struct {
	Mode            Mode
	Splits          int
	RecordsPerSplit uint64
	Keys            uint64
	// BatchMax is the most records that one fetch returns.
	BatchMax                                             uint64
	SourceParallelism, CountParallelism, SinkParallelism int
	MaxParallelism                                       int
	// Revocable: the sink can take back what it has committed.
	Revocable bool

	// Flow, if not nil, makes it a drawn graph. Of what sizes the other kinds of job only
	// Keys, BatchMax, MaxParallelism, Revocable and Idleness count then.
	Flow *Flow
	// Stateful makes it the job with every kind of state, of timers and of time.
	Stateful bool
	// RuleSplits splits of RulesPerSplit records are broadcast to an operator
	// of RuledParallelism.
	RuleSplits       int
	RulesPerSplit    uint64
	RuledParallelism int
	// Idleness is that of the sources; 0 for never.
	Idleness time.Duration
	// TTL is the time-to-live of the states that have one, OnRead its mode.
	TTL    time.Duration
	OnRead bool
}

// String prints the options in a few lines.
func (o Options) String() string {
	if o.Flow != nil {
		return fmt.Sprintf("flow, %s: %d keys, batches of %d, max parallelism %d, idleness %s, revocable %t\n%s",
			o.Mode, o.Keys, o.BatchMax, o.MaxParallelism, o.Idleness, o.Revocable, o.Flow)
	}
	s := fmt.Sprintf("job, %s: %d splits of %d records, %d keys, batches of %d; parallelism %d, %d, %d of %d, revocable %t\n",
		o.Mode, o.Splits, o.RecordsPerSplit, o.Keys, o.BatchMax, o.SourceParallelism, o.CountParallelism, o.SinkParallelism, o.MaxParallelism, o.Revocable)
	if o.Stateful {
		s += fmt.Sprintf("stateful: %d splits of %d rules for parallelism %d; idleness %s, time-to-live %s, on read %t\n",
			o.RuleSplits, o.RulesPerSplit, o.RuledParallelism, o.Idleness, o.TTL, o.OnRead)
	}
	return s
}

// IsUnbounded reports whether the job never ends by itself.
func (o Options) IsUnbounded() bool { return o.Flow != nil && o.Flow.IsUnbounded() }

// HasRing reports whether records go round in the job without being spread by key in
// between.
func (o Options) HasRing() bool {
	return o.Flow != nil && slices.ContainsFunc(o.Flow.Nodes, func(v Node) bool { return v.Kind == RingNode })
}

// HasLoop reports whether records go round in the job.
func (o Options) HasLoop() bool {
	return o.Flow != nil && slices.ContainsFunc(o.Flow.Nodes, func(v Node) bool { return v.Kind.isLoop() })
}

// Widest is the largest parallelism of an operator: the slots that it needs.
func (o Options) Widest() int {
	if o.Flow != nil {
		return o.Flow.Widest()
	}
	return max(o.SourceParallelism, o.CountParallelism, o.SinkParallelism, o.RuledParallelism)
}

// Fetches is about how many fetches the busiest subtask makes.
func (o Options) Fetches() int {
	if o.Flow != nil {
		return o.Flow.fetches(o.BatchMax)
	}
	return (o.Splits + o.SourceParallelism - 1) / o.SourceParallelism * int((o.RecordsPerSplit+o.BatchMax-1)/o.BatchMax)
}

// Key is the key of number i of a split. The numbers of a split visit all
// keys, in an order that differs between splits.
func (o Options) Key(split int, i uint64) uint64 {
	return (i*7 + uint64(split)*3) % o.Keys
}

// Program builds the job. world receives what the sink commits.
func Program(o Options, world *World) (*operator.Program, error) {
	if o.Flow != nil {
		return flowProgram(o, world)
	}
	if o.Stateful {
		return statefulProgram(o, world)
	}
	numberCodec, err := codec.For[uint64]()
	if err != nil {
		return nil, fmt.Errorf("codec of numbers: %w", err)
	}
	countCodec, err := codec.For[Count]()
	if err != nil {
		return nil, fmt.Errorf("codec of counts: %w", err)
	}
	keys, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		return nil, fmt.Errorf("encoding of keys: %w", err)
	}
	g := graph.JobGraph{
		Name: "simulated count", MaxParallelism: o.MaxParallelism,
		Operators: []graph.Operator{
			{UID: Numbers, Kind: graph.SourceOperator, Parallelism: o.SourceParallelism, OutputType: numberCodec.Schema(), Bounded: true},
			{UID: Counts, Kind: graph.ProcessOperator, Parallelism: o.CountParallelism, OutputType: countCodec.Schema(), KeyType: keys.Schema()},
			{UID: Out, Kind: graph.SinkOperator, Parallelism: o.SinkParallelism, TwoPhase: true, CommitsRevocable: o.Revocable},
		},
		Edges: []graph.Edge{
			{From: Numbers, To: Counts, Partitioner: graph.Hash, Type: numberCodec.Schema()},
			{From: Counts, To: Out, Partitioner: graph.Rebalance, Type: countCodec.Schema()},
		},
	}
	identity := func(v uint64) uint64 { return v }
	return &operator.Program{
		Graph: g,
		Nodes: map[ids]*operator.Node{
			Numbers: {UID: Numbers, Discard: discard[uint64](), Tee: tee[uint64](),
				New: func(out func(string) any) (operator.Instance, error) {
					return operator.NewSource[uint64](source{o: o, world: world}, out("").(operator.Collector[uint64])), nil
				}},
			Counts: {UID: Counts, Discard: discard[Count](), Tee: tee[Count](),
				New: func(out func(string) any) (operator.Instance, error) {
					op := &counter{o: o, world: world, out: out("").(operator.Collector[Count])}
					watched := &watchedOperator{Operator: op, o: o, world: world, uid: Counts}
					return operator.Instance{Operator: watched, Inputs: []any{operator.Collector[uint64](op)}}, nil
				}},
			Out: {UID: Out, New: func(func(string) any) (operator.Instance, error) {
				return operator.NewTwoPhase[Count](sink{world: world, revocable: o.Revocable}), nil
			}},
		},
		Edges: []*operator.EdgeCode{
			{
				NewInput: func(c any) operator.Input {
					return operator.NewInput(numberCodec, c.(operator.Collector[uint64]))
				},
				NewOutput: func(w *operator.Writer) any {
					return operator.NewHashOutput(numberCodec, identity, keys, w)
				},
				NewGrouper: func(maxParallelism int) operator.Grouper {
					return operator.NewGrouper(numberCodec, identity, keys, maxParallelism)
				},
			},
			{
				NewInput: func(c any) operator.Input {
					return operator.NewInput(countCodec, c.(operator.Collector[Count]))
				},
				NewOutput: func(w *operator.Writer) any { return operator.NewRebalanceOutput(countCodec, w) },
			},
		},
	}, nil
}

func discard[T any]() map[string]any { return map[string]any{"": operator.Discard[T]()} }

func tee[T any]() map[string]func([]any) any {
	return map[string]func([]any) any{"": func(all []any) any {
		out := make([]operator.Collector[T], len(all))
		for i, c := range all {
			out[i] = c.(operator.Collector[T])
		}
		return operator.Tee(out)
	}}
}

// source emits the keys of Options.Splits splits.
type source struct {
	o     Options
	world *World
}

// ListSplits implements operator.Source.
func (s source) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	out := make([][]byte, s.o.Splits)
	for i := range out {
		out[i] = binary.LittleEndian.AppendUint64(nil, uint64(i))
	}
	return out, true, nil
}

// OpenReader implements operator.Source.
func (s source) OpenReader(_ context.Context, sc operator.SourceContext, split, position []byte) (operator.Reader[uint64], error) {
	r := &reader{o: s.o, world: s.world, split: int(binary.LittleEndian.Uint64(split))}
	if position != nil {
		r.next = positionOf(position)
	}
	s.world.Observer.opened(sc.Context, r.split, r.next)
	return r, nil
}

// Describe implements operator.Source.
func (s source) Describe() operator.Description { return operator.Description{Bounded: true} }

type reader struct {
	o     Options
	world *World
	split int
	next  uint64
}

// Fetch implements operator.Reader.
func (r *reader) Fetch(context.Context) (operator.Batch[uint64], error) {
	if err := r.world.Observer.fails(Fetching); err != nil {
		return nil, err
	}
	if r.next >= r.o.RecordsPerSplit {
		return nil, io.EOF
	}
	b := &batch{o: r.o, world: r.world, split: r.split, next: r.next, end: min(r.next+r.o.BatchMax, r.o.RecordsPerSplit)}
	r.next = b.end
	return b, nil
}

// Close implements operator.Reader.
func (r *reader) Close() error { return nil }

type batch struct {
	o         Options
	world     *World
	split     int
	next, end uint64
}

// Next implements operator.Batch.
func (b *batch) Next(v *uint64) (bool, error) {
	if b.next == b.end {
		return false, nil
	}
	b.world.Observer.record()
	*v = b.o.Key(b.split, b.next)
	b.next++
	return true, nil
}

// Position implements operator.Batch.
func (b *batch) Position() []byte { return binary.LittleEndian.AppendUint64(nil, b.next) }

// counter counts by key.
type counter struct {
	o     Options
	world *World
	ctx   *operator.Context
	out   operator.Collector[Count]
	keyed *state.Keyed[uint64]
	n     state.Value[uint64]
}

// Open implements operator.Operator.
func (c *counter) Open(ctx *operator.Context) (err error) {
	c.ctx = ctx
	c.keyed, err = state.NewKeyed[uint64](state.Options{
		Operator: ctx.Operator, Range: ctx.KeyGroups, MaxParallelism: ctx.MaxParallelism, Backend: ctx.Backend, Dir: ctx.Dir,
	})
	if err != nil {
		return err
	}
	c.n, err = state.NewValue[uint64](c.keyed, "n")
	return err
}

// Restore implements operator.Operator.
func (c *counter) Restore(_ context.Context, r *operator.Restored) error {
	return c.keyed.Backend().Restore(r.Keyed)
}

// Collect implements operator.Collector.
func (c *counter) Collect(key uint64) error {
	c.world.Observer.record()
	if err := c.keyed.SetCurrentKey(key); err != nil {
		return err
	}
	n, _, err := c.n.Ref()
	if err != nil {
		return err
	}
	*n++
	return c.out.Collect(Count{Key: key, N: *n})
}

// Freeze implements operator.Operator.
func (c *counter) Freeze(element.Barrier) (operator.Frozen, error) {
	f, err := c.keyed.Backend().Freeze()
	if err != nil {
		return nil, err
	}
	return frozenKeyed{f}, nil
}

// Finish implements operator.Operator.
func (c *counter) Finish() error { return nil }

// Close implements operator.Operator.
func (c *counter) Close() error { return c.keyed.Backend().Close() }
