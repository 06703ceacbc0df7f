package subtask_test

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	objectmemory "github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

const testJob = ids.JobID("0123456789abcdef0123456789abcdef")

// testCredit lets producers run out of it often.
const testCredit = 4 << 10

// rig runs all subtasks of a job on the test's goroutine, with channels that
// deliver when told and work that is done when told.
type rig struct {
	t       *testing.T
	options simjob.Options
	world   *simjob.World
	store   *checkpointstore.Store
	graph   graph.ExecutionGraph
	hosts   map[ids.SubtaskID]*host
	order   []ids.SubtaskID
	// slow holds the writing of snapshots back.
	slow bool
	// now is processing time, and goes on by tick with every round of run.
	now, tick int64
}

// host is one subtask with everything it asked for.
type host struct {
	r       *rig
	id      ids.SubtaskID
	s       *subtask.Subtask
	sent    []sentFrame
	grants  map[int]int64
	work    []subtask.Work
	reports []subtask.Report
	// hold keeps sent frames and grants from being delivered.
	hold bool
}

type sentFrame struct {
	out subtask.Output
	f   element.Frame
}

func (h *host) Send(out subtask.Output, f element.Frame) {
	f.Data = slices.Clone(f.Data)
	h.sent = append(h.sent, sentFrame{out, f})
}
func (h *host) Grant(in int, bytes int64) { h.grants[in] += bytes }
func (h *host) Go(w subtask.Work)         { h.work = append(h.work, w) }
func (h *host) Report(r subtask.Report)   { h.reports = append(h.reports, r) }

// restorePoint is what a rig starts from.
type restorePoint struct {
	id     ids.CheckpointID
	states []snapshot.SubtaskState
	// unbounded: further splits may come, so the job does not end.
	unbounded bool
}

func newRig(t *testing.T, o simjob.Options, world *simjob.World, store *checkpointstore.Store, attempt uint32, from restorePoint) *rig {
	t.Helper()
	program, err := simjob.Program(o, world)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, program, o, world, store, attempt, from, testCredit)
}

// newRigOf is newRig with the job's program changed for the test.
func newRigOf(t *testing.T, program *operator.Program, o simjob.Options, world *simjob.World, store *checkpointstore.Store, attempt uint32, from restorePoint, credit int64) *rig {
	t.Helper()
	return newRigWith(t, program, o, world, store, attempt, from, credit, nil)
}

// newRigWith is newRigOf with the subtasks' configuration changed.
func newRigWith(t *testing.T, program *operator.Program, o simjob.Options, world *simjob.World, store *checkpointstore.Store, attempt uint32, from restorePoint, credit int64, change func(*subtask.Config)) *rig {
	t.Helper()
	g, err := graph.Expand(program.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, options: o, world: world, store: store, graph: g, hosts: map[ids.SubtaskID]*host{}}
	for v := range g.Vertices {
		for i := range g.Vertices[v].Parallelism {
			id := ids.SubtaskID{Vertex: ids.VertexID(v), Index: int32(i)}
			d := coordinator.TaskDeployment{Subtask: id}
			for _, st := range from.states {
				if st.Subtask == id {
					d.Restore, d.EndOfData = st.Operators, st.EndOfData
				}
			}
			d.InFlight = r.restoredFlight(id, from.states)
			if v == 0 {
				a := coordinator.SplitAssignment{Subtask: id, Operator: simjob.Numbers, Complete: !from.unbounded}
				for s := i; s < o.Splits; s += o.SourceParallelism {
					a.Indexes = append(a.Indexes, int64(s))
					a.Splits = append(a.Splits, snapshot.Split{Data: []byte{byte(s), 0, 0, 0, 0, 0, 0, 0}})
				}
				d.Splits = []coordinator.SplitAssignment{a}
			}
			h := &host{r: r, id: id, grants: map[int]int64{}}
			cfg := subtask.Config{
				Job: testJob, Attempt: ids.AttemptID{Token: 1, Number: attempt}, Program: program, Graph: &r.graph,
				Deployment: d, RestoredCheckpoint: from.id, RestoreBase: checkpointstore.JobBase("/ckpt", testJob),
				Store: store, CheckpointDir: "/ckpt", CreditBytes: credit,
				Backend: memory.New(), Output: io.Discard,
			}
			if change != nil {
				change(&cfg)
			}
			h.s, err = subtask.New(cfg, h)
			if err != nil {
				t.Fatal(err)
			}
			r.hosts[id] = h
			r.order = append(r.order, id)
		}
	}
	for _, id := range r.order {
		r.hosts[id].s.Start()
	}
	return r
}

func newStore(t *testing.T) *checkpointstore.Store {
	t.Helper()
	objects := map[string]objectstore.Store{}
	return checkpointstore.New(func(uri string) (objectstore.Store, error) {
		if objects[uri] == nil {
			objects[uri] = objectmemory.New(uri)
		}
		return objects[uri], nil
	})
}

// deliver passes on what a subtask has sent and granted.
func (r *rig) deliver(h *host) {
	if h.hold {
		return
	}
	v := &r.graph.Vertices[h.id.Vertex]
	channels := r.graph.OutputChannels(v.ID, h.id.Index)
	sent := h.sent
	h.sent = nil
	for _, f := range sent {
		to := channels[f.out.Edge][f.out.Channel]
		r.hosts[to.To].s.Receive(to.ToChannel, f.f)
	}
	in := r.graph.InputChannels(v.ID, h.id.Index)
	for ch := range in {
		n := h.grants[ch]
		if n == 0 {
			continue
		}
		delete(h.grants, ch)
		producer := r.hosts[in[ch].From]
		for edge, e := range r.graph.Vertices[in[ch].From.Vertex].Outputs {
			if e == in[ch].Edge {
				producer.s.AddCredit(subtask.Output{Edge: edge, Channel: in[ch].FromOutput}, n)
			}
		}
	}
}

// doWork carries out what a subtask has asked for, and reports whether there
// was anything.
func (r *rig) doWork(h *host) bool {
	did := false
	for i := 0; i < len(h.work); {
		w := h.work[i]
		if r.slow && w.Lane == subtask.SnapshotLane {
			i++
			continue
		}
		did = true
		h.work = slices.Delete(h.work, i, i+1)
		h.s.Complete(w.Run(context.Background()))
	}
	return did
}

// run steps everything until nothing moves, or until stop says so.
func (r *rig) run(stop func() bool) {
	for {
		moved := false
		r.now += r.tick
		for _, id := range r.order {
			h := r.hosts[id]
			moved = r.doWork(h) || moved
			before := h.s.Metrics()
			h.s.Advance(r.now)
			p := h.s.Step(1)
			after := h.s.Metrics()
			moved = moved || p == subtask.More || before != after || len(h.sent) > 0 && !h.hold
			r.deliver(h)
			if stop != nil && stop() {
				return
			}
		}
		if !moved {
			return
		}
	}
}

func (r *rig) trigger(b element.Barrier) {
	for _, id := range r.order {
		if id.Vertex == 0 {
			r.hosts[id].s.Trigger(b)
		}
	}
}

// acks collects the acknowledged snapshots of a checkpoint.
func (r *rig) acks(id ids.CheckpointID) []snapshot.SubtaskState {
	var out []snapshot.SubtaskState
	for _, sub := range r.order {
		for _, rep := range r.hosts[sub].reports {
			if a, ok := rep.(subtask.AckReport); ok && a.Checkpoint == id {
				out = append(out, a.State)
			}
		}
	}
	return out
}

func (r *rig) complete(id ids.CheckpointID) {
	for _, sub := range r.order {
		r.hosts[sub].s.NotifyComplete(id)
	}
}

func (r *rig) count(match func(subtask.Report) bool) int {
	n := 0
	for _, sub := range r.order {
		for _, rep := range r.hosts[sub].reports {
			if match(rep) {
				n++
			}
		}
	}
	return n
}

func (r *rig) failures() []coordinator.Failure {
	var out []coordinator.Failure
	for _, sub := range r.order {
		for _, rep := range r.hosts[sub].reports {
			if s, ok := rep.(subtask.StatusReport); ok && s.Status == coordinator.Failed {
				out = append(out, s.Failure)
			}
		}
	}
	return out
}

func (r *rig) close() {
	for _, id := range r.order {
		h := r.hosts[id]
		h.s.Cancel(subtask.KeepAll)
		r.doWork(h)
		if err := h.s.Close(); err != nil {
			r.t.Error(err)
		}
	}
}
