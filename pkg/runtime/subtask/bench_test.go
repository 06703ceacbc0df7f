package subtask_test

import (
	"context"
	"io"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// directHost connects two subtasks on one goroutine and recycles buffers: the
// processor time of the record path and nothing else.
type directHost struct {
	to, from *subtask.Subtask
	work     []subtask.Work
	free     []*recycled
}

type recycled struct {
	h   *directHost
	buf []byte
}

func (r *recycled) Free() { r.h.free = append(r.h.free, r) }

func (h *directHost) buffer() ([]byte, element.Owner) {
	if n := len(h.free); n > 0 {
		r := h.free[n-1]
		h.free = h.free[:n-1]
		return r.buf[:0], r
	}
	r := &recycled{h: h, buf: make([]byte, 0, operator.CutBytes+operator.CutBytes/8)}
	return r.buf, r
}

func (h *directHost) Send(_ subtask.Output, f element.Frame) { h.to.Receive(0, f) }
func (h *directHost) Grant(_ int, bytes int64)               { h.from.AddCredit(subtask.Output{}, bytes) }
func (h *directHost) Go(w subtask.Work)                      { h.work = append(h.work, w) }
func (h *directHost) Report(subtask.Report)                  {}

func (h *directHost) doWork(s *subtask.Subtask) {
	for len(h.work) > 0 {
		w := h.work[0]
		h.work = h.work[1:]
		s.Complete(w.Run(context.Background()))
	}
}

// BenchmarkKeyedCountPath is source -> hash edge -> decode -> count, both
// subtasks on one goroutine.
func BenchmarkKeyedCountPath(b *testing.B) {
	o := simjob.Options{
		Splits: 1, RecordsPerSplit: uint64(b.N), Keys: 1_000_000, BatchMax: 1 << 14,
		SourceParallelism: 1, CountParallelism: 1, SinkParallelism: 1, MaxParallelism: 128,
	}
	program, err := simjob.Program(o, simjob.NewWorld())
	if err != nil {
		b.Fatal(err)
	}
	// The sink is cut off: counts go nowhere.
	program.Graph.Operators = program.Graph.Operators[:2]
	program.Graph.Edges = program.Graph.Edges[:1]
	g, err := graph.Expand(program.Graph, 1)
	if err != nil {
		b.Fatal(err)
	}
	source, count := &directHost{}, &directHost{}
	make := func(h *directHost, vertex ids.VertexID, splits []coordinator.SplitAssignment) *subtask.Subtask {
		s, err := subtask.New(subtask.Config{
			Job: testJob, Attempt: ids.AttemptID{Token: 1, Number: 1}, Program: program, Graph: &g,
			Deployment:  coordinator.TaskDeployment{Subtask: ids.SubtaskID{Vertex: vertex}, Splits: splits},
			CreditBytes: 256 << 10, Backend: memory.New(), Output: io.Discard, NewBuffer: h.buffer,
		}, h)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	producer := make(source, 0, []coordinator.SplitAssignment{{
		Operator: simjob.Numbers, Indexes: []int64{0}, Splits: []snapshot.Split{{Data: []byte{0, 0, 0, 0, 0, 0, 0, 0}}}, Complete: true,
	}})
	consumer := make(count, 1, nil)
	source.to, count.from = consumer, producer
	producer.Start()
	source.doWork(producer)
	consumer.Start()
	count.doWork(consumer)
	b.ReportAllocs()
	b.ResetTimer()
	for consumer.Metrics().RecordsIn < int64(b.N) {
		producer.Step(4)
		source.doWork(producer)
		consumer.Step(4)
	}
	b.StopTimer()
	if err := producer.Close(); err != nil {
		b.Fatal(err)
	}
	if err := consumer.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMapCount is the yardstick: the same keys into a bare Go map.
func BenchmarkMapCount(b *testing.B) {
	o := simjob.Options{Keys: 1_000_000}
	m := make(map[uint64]uint64, o.Keys)
	for i := range o.Keys {
		m[i] = 0
	}
	b.ReportAllocs()
	for i := range uint64(b.N) {
		m[o.Key(0, i)]++
	}
}
