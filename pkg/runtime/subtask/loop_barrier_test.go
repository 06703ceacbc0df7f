package subtask_test

import (
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/stream"
)

// noSource is the source of a job of which one subtask alone is looked at.
type noSource struct{}

// ListSplits implements operator.Source.
func (noSource) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	return nil, true, nil
}

// OpenReader implements operator.Source.
func (noSource) OpenReader(context.Context, operator.SourceContext, []byte, []byte) (operator.Reader[uint64], error) {
	return nil, io.EOF
}

// Describe implements operator.Source.
func (noSource) Describe() operator.Description { return operator.Description{} }

// chainedLoop is the second subtask of a loop whose body is chained to its head, so that
// the feedback edge leads from each of the head's subtasks to each.
func chainedLoop(t *testing.T, change func(*subtask.Config)) (h *host, forward []int, feedback int) {
	t.Helper()
	env := stream.NewEnv("t")
	two := stream.WithParallelism(2)
	in := stream.From[uint64](env, "in", noSource{}, two)
	out := stream.Iterate(stream.KeyBy(in, func(v uint64) uint64 { return v }), "loop",
		func(loop stream.KeyedStream[uint64, uint64]) (stream.Stream[uint64], stream.Stream[uint64]) {
			step := stream.Map(loop.Stream().Forward(), func(v uint64) (uint64, error) { return v + 1, nil }, stream.WithUID("step"), two)
			return step, step
		}, two)
	stream.To(out, "out", file.ExactlyOnce[uint64]("x"), stream.WithParallelism(1))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Expand(program.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	id := ids.SubtaskID{Vertex: 1, Index: 1}
	h = &host{id: id, grants: map[int]int64{}}
	cfg := subtask.Config{
		Job: testJob, Attempt: ids.AttemptID{Token: 1, Number: 1}, Program: program, Graph: &g,
		Deployment: coordinator.TaskDeployment{Subtask: id}, Store: newStore(t), CheckpointDir: "/ckpt",
		CreditBytes: 1 << 20, Backend: memory.New(), Output: io.Discard,
	}
	change(&cfg)
	h.s, err = subtask.New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	h.s.Start()
	h.carryOut()
	for e, channels := range g.OutputChannels(id.Vertex, id.Index) {
		for ch := range channels {
			h.s.AddCredit(subtask.Output{Edge: e, Channel: ch}, 1<<20)
		}
	}
	for ch, c := range g.InputChannels(id.Vertex, id.Index) {
		switch {
		case !c.Feedback:
			forward = append(forward, ch)
		case c.From.Index == 0:
			feedback = ch
		}
	}
	return h, forward, feedback
}

// carryOut does all work that was asked for.
func (h *host) carryOut() {
	for len(h.work) > 0 {
		w := h.work[0]
		h.work = h.work[1:]
		h.s.Complete(w.Run(context.Background()))
	}
}

// steps lets the subtask do all that it can.
func (h *host) steps() {
	for h.s.Step(16) == subtask.More {
	}
}

// word is a frame of one record.
func word(v uint64) element.Frame {
	return element.Frame{Kind: element.Records, Count: 1, Data: binary.LittleEndian.AppendUint64(nil, v)}
}

// A barrier comes round before the head's own snapshot: another subtask of the head
// was faster, and its records from behind the barrier come behind it. They must not
// be in the state of the one that still waits, nor pass through it in front of its
// barrier, or they are counted again after a restore. What waits behind the barrier may
// be on disk, and must not keep the head from what comes from outside.
func TestI5RecordsBehindAReturnedBarrierWaitForTheHeadsSnapshot(t *testing.T) {
	for name, change := range map[string]func(*subtask.Config){
		"in memory": func(*subtask.Config) {},
		"on disk":   func(c *subtask.Config) { c.Dir, c.LoopBytesMax = t.TempDir(), 1 },
	} {
		t.Run(name, func(t *testing.T) {
			h, forward, feedback := chainedLoop(t, change)
			barrier := element.BarrierFrame(element.Barrier{Checkpoint: 1})
			h.s.Receive(feedback, barrier)
			h.s.Receive(feedback, word(41))
			h.steps()
			h.s.Receive(forward[0], word(42))
			for _, ch := range forward {
				h.s.Receive(ch, barrier)
			}
			h.steps()
			h.carryOut()
			var before, behind int
			passed := false
			for _, sent := range h.sent {
				passed = passed || sent.f.Kind == element.BarrierKind
				switch {
				case sent.f.Kind != element.Records:
				case passed:
					behind += int(sent.f.Count)
				default:
					before += int(sent.f.Count)
				}
			}
			// Each record goes round and out.
			if before != 2 || behind != 2 {
				t.Errorf("%d records were sent in front of the barrier and %d behind it, want 2 and 2", before, behind)
			}
			if (h.s.Metrics().SpilledBytes > 0) != (name == "on disk") {
				t.Errorf("%d bytes were on disk", h.s.Metrics().SpilledBytes)
			}
			if err := h.s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
