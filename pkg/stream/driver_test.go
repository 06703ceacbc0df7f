package stream_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/stream"
)

const testJob = ids.JobID("0123456789abcdef0123456789abcdef")

// driver runs a job's chains in one goroutine: frames go from outbox to input
// without credit, and every subtask sees all its input before it finishes.
type driver struct {
	t       testing.TB
	program *operator.Program
	graph   graph.ExecutionGraph
	chains  map[ids.SubtaskID]*operator.Chain
	queue   []delivery
	pace    operator.Pace
	output  io.Writer
	// record, if set, sees every frame; drop loses all of them.
	record func(delivery)
	drop   bool
}

// delivery is a frame on its way to a subtask's input.
type delivery struct {
	to    ids.SubtaskID
	input int
	frame element.Frame
}

// newDriver assembles all subtasks and opens their operators. restored gives
// what an operator in a subtask starts from; nil is nothing.
func newDriver(t testing.TB, build func(*stream.Env), parallelism int, restored func(ids.OperatorUID, ids.SubtaskID) *operator.Restored) (*driver, error) {
	t.Helper()
	env := stream.NewEnv("test")
	build(env)
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Expand(p.Graph, parallelism)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, program: p, graph: g, chains: map[ids.SubtaskID]*operator.Chain{}, output: io.Discard}
	backend := memory.New()
	for _, id := range g.Subtasks() {
		at := operator.Place{
			Job: testJob, Attempt: ids.AttemptID{Token: 1, Number: 1}, Subtask: id, Output: d.output, Backend: backend,
		}
		c, err := operator.Assemble(p, &g, at, &outbox{d: d, from: id})
		if err != nil {
			t.Fatal(err)
		}
		d.chains[id] = c
		for _, op := range c.Operators {
			if err := op.Instance.Operator.Open(op.Context); err != nil {
				return d, err
			}
			r := &operator.Restored{}
			if restored != nil {
				r = restored(op.Context.Operator, id)
			}
			if err := op.Instance.Operator.Restore(t.Context(), r); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// outbox queues what a subtask sends.
type outbox struct {
	d    *driver
	from ids.SubtaskID
}

// Emit implements operator.Outbox.
func (o *outbox) Emit(edge, ch int, f element.Frame) {
	if o.d.drop {
		return
	}
	g := &o.d.graph
	e := g.Vertices[o.from.Vertex].Outputs[edge]
	to := g.OutputChannels(o.from.Vertex, o.from.Index)[edge][ch].To
	for i, in := range g.Vertices[to.Vertex].Inputs {
		if in == e {
			x := delivery{to: to, input: i, frame: f}
			o.d.queue = append(o.d.queue, x)
			if o.d.record != nil {
				o.d.record(x)
			}
		}
	}
}

// NewBuffer implements operator.Outbox.
func (o *outbox) NewBuffer() ([]byte, element.Owner) {
	return make([]byte, 0, operator.CutBytes+1024), nil
}

// CutAt implements operator.Outbox.
func (o *outbox) CutAt(int, int) int { return operator.CutBytes }

// run reads all sources to their end, then finishes the vertices in order.
func (d *driver) run() error {
	for _, v := range d.graph.Vertices {
		for i := range v.Parallelism {
			id := ids.SubtaskID{Vertex: v.ID, Index: int32(i)}
			c := d.chains[id]
			if c.Source != nil {
				if err := d.read(c, i, v.Parallelism); err != nil {
					return err
				}
			}
			for _, op := range c.Operators {
				if err := op.Instance.Operator.Finish(); err != nil {
					return err
				}
			}
			d.flush(c)
			if err := d.deliver(); err != nil {
				return err
			}
		}
	}
	return nil
}

// read gives a source all its splits and passes its records on.
func (d *driver) read(c *operator.Chain, index, parallelism int) error {
	splits, complete, err := c.Source.List()(d.t.Context())
	if err != nil {
		return err
	}
	var indexes []int64
	var own []snapshot.Split
	for i, s := range splits {
		if i%parallelism == index {
			indexes, own = append(indexes, int64(i)), append(own, s)
		}
	}
	c.Source.Assign(indexes, own, complete)
	for !c.Source.Ended() {
		fetch, ok := c.Source.NextFetch()
		if !ok {
			return fmt.Errorf("source %s neither ends nor fetches", c.Operators[0].Context.Operator)
		}
		if err := c.Source.Fetched(fetch(d.t.Context())); err != nil {
			return err
		}
		for c.Source.HasBatch() {
			if _, _, err := c.Source.Process(&d.pace); err != nil {
				return err
			}
		}
		d.flush(c)
		if err := d.deliver(); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) flush(c *operator.Chain) {
	for _, w := range c.Writers {
		w.Flush()
	}
}

// deliver processes frames until none is left.
func (d *driver) deliver() error {
	for len(d.queue) > 0 {
		next := d.queue[0]
		d.queue = d.queue[1:]
		c := d.chains[next.to]
		if _, _, err := c.Inputs[next.input].Process(next.frame.Data, &d.pace); err != nil {
			return err
		}
		d.flush(c)
	}
	return nil
}

func (d *driver) close() error {
	var first error
	for _, id := range d.graph.Subtasks() {
		for _, op := range d.chains[id].Operators {
			if err := op.Instance.Operator.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// freeze takes the snapshot of every operator's keyed state, by operator.
func (d *driver) freeze() map[ids.OperatorUID][]statebackend.RestoredPart {
	d.t.Helper()
	parts := map[ids.OperatorUID][]statebackend.RestoredPart{}
	for _, id := range d.graph.Subtasks() {
		for _, op := range d.chains[id].Operators {
			f, err := op.Instance.Operator.Freeze(element.Barrier{Checkpoint: 1})
			if err != nil {
				d.t.Fatal(err)
			}
			if f == nil {
				continue
			}
			w := &keyedWriter{part: statebackend.RestoredPart{Range: op.Context.KeyGroups}}
			if err := f.Write(d.t.Context(), w); err != nil {
				d.t.Fatal(err)
			}
			f.Release()
			if w.written {
				parts[op.Context.Operator] = append(parts[op.Context.Operator], w.part)
			}
		}
	}
	return parts
}

// keyedWriter keeps keyed state as it is restored.
type keyedWriter struct {
	part    statebackend.RestoredPart
	written bool
}

// Keyed implements operator.SnapshotWriter.
func (w *keyedWriter) Keyed(f statebackend.Frozen) (err error) {
	w.written = true
	w.part.Offsets, w.part.States, err = f.WriteSnapshot(appender{&w.part.Data})
	return err
}

// List implements operator.SnapshotWriter.
func (w *keyedWriter) List(string, snapshot.Redistribution, [][]byte, []int64, ...snapshot.StateMeta) error {
	return nil
}

type appender struct{ to *[]byte }

// Write implements io.Writer.
func (a appender) Write(p []byte) (int, error) {
	*a.to = append(*a.to, p...)
	return len(p), nil
}

// runJob runs a job to its end and closes it.
func runJob(t testing.TB, parallelism int, build func(*stream.Env)) error {
	t.Helper()
	d, err := newDriver(t, build, parallelism, nil)
	if err == nil {
		err = d.run()
	}
	if closeErr := d.close(); err == nil {
		err = closeErr
	}
	return err
}

// values is a source of a fixed list, one split for each value.
type values[T any] struct{ list []T }

func valuesOf[T any](list ...T) operator.Source[T] { return values[T]{list} }

// ListSplits implements operator.Source.
func (s values[T]) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	splits := make([][]byte, len(s.list))
	for i := range splits {
		splits[i] = []byte{byte(i)}
	}
	return splits, true, nil
}

// OpenReader implements operator.Source.
func (s values[T]) OpenReader(_ context.Context, _ operator.SourceContext, split, _ []byte) (operator.Reader[T], error) {
	return &valueReader[T]{v: s.list[split[0]]}, nil
}

// Describe implements operator.Source.
func (s values[T]) Describe() operator.Description {
	return operator.Description{Bounded: true, Options: map[string]string{"b": "2", "a": "1"}}
}

type valueReader[T any] struct {
	v       T
	fetched bool
	read    bool
}

// Fetch implements operator.Reader.
func (r *valueReader[T]) Fetch(context.Context) (operator.Batch[T], error) {
	if r.fetched {
		return nil, io.EOF
	}
	r.fetched = true
	return r, nil
}

// Next implements operator.Batch.
func (r *valueReader[T]) Next(v *T) (bool, error) {
	if r.read {
		return false, nil
	}
	r.read = true
	*v = r.v
	return true, nil
}

// Position implements operator.Batch.
func (r *valueReader[T]) Position() []byte { return []byte{1} }

// Close implements operator.Reader.
func (r *valueReader[T]) Close() error { return nil }

// collected is a sink that keeps what all its subtasks are given.
type collected[T any] struct{ got []T }

// OpenWriter implements operator.Sink.
func (c *collected[T]) OpenWriter(*operator.Context) (operator.SinkWriter[T], error) { return c, nil }

// Describe implements operator.Sink.
func (c *collected[T]) Describe() operator.Description { return operator.Description{} }

// Write implements operator.SinkWriter.
func (c *collected[T]) Write(v T) error {
	c.got = append(c.got, v)
	return nil
}

// Flush implements operator.SinkWriter.
func (c *collected[T]) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (c *collected[T]) Close() error { return nil }
