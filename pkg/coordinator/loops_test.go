package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// loopCoordinator runs a job whose loop has a head of parallelism 2 and a body of 1.
func loopCoordinator(t *testing.T) *Coordinator {
	t.Helper()
	g, err := graph.Expand(graph.JobGraph{
		Name: "loop",
		Operators: []graph.Operator{
			{UID: "in", Kind: graph.SourceOperator, Parallelism: 1},
			{UID: "loop", Kind: graph.IterateOperator, Parallelism: 2, KeyType: "k"},
			{UID: "step", Kind: graph.ProcessOperator, Parallelism: 1, KeyType: "k"},
		},
		Edges: []graph.Edge{
			{From: "in", To: "loop", Partitioner: graph.Hash},
			{From: "loop", To: "step", Partitioner: graph.Hash},
			{From: "step", To: "loop", Partitioner: graph.Hash, Feedback: true},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Job: "0123456789abcdef0123456789abcdef"}, g)
	c.phase, c.token, c.nextID, c.timers = phaseRun, 1, 5, timers{}
	c.record.blockEnd = 100
	c.attempt.id = ids.AttemptID{Token: 1, Number: 1}
	x := &executor{id: ids.ExecutorID{Job: c.cfg.Job, Attempt: c.attempt.id, TaskManager: "tm"}, subtasks: g.Subtasks()}
	x.sources = x.subtasks[:1]
	c.attempt.executors = []*executor{x}
	c.attempt.deployed = true
	c.attempt.placement = make([]int, 4)
	c.attempt.status = []TaskStatus{Running, Running, Running, Running}
	c.attempt.counts[Running] = 4
	c.attempt.committed = make([]ids.CheckpointID, 4)
	return c
}

func (c *Coordinator) setTask(i int, s TaskStatus) {
	c.attempt.counts[c.attempt.status[i]]--
	c.attempt.status[i] = s
	c.attempt.counts[s]++
}

func TestLoopsAreLookedIntoWhenTheirInputHasEnded(t *testing.T) {
	c := loopCoordinator(t)
	now := time.Unix(1000, 0)
	c.setTask(0, RunningEndOfData)
	c.setTask(1, RunningInputEnded)
	if c.checkLoops(now); len(c.pending) > 0 || c.wantsLoopCheck() {
		t.Fatal("a loop is looked into although records still come into it")
	}
	c.setTask(2, RunningInputEnded)
	c.checkLoops(now)
	if at, ok := c.NextDeadline(); len(c.pending) > 0 || !ok || !at.Equal(now.Add(loopCheckFirst)) {
		t.Fatalf("%d checkpoints, the next deadline is %s, %t", len(c.pending), at, ok)
	}
	now = now.Add(loopCheckFirst)
	if c.checkLoops(now); len(c.pending) != 1 || c.pending[0].kind != snapshot.Checkpoint {
		t.Fatal("no checkpoint looks into the loop")
	}
	if c.wantsLoopCheck() {
		t.Error("a second one looks while the first is under way")
	}
	var waits []time.Duration
	for range 8 {
		now = now.Add(3 * time.Second) // the look takes longer than any pause
		c.endPending(now, c.pending[0], "")
		c.checkLoops(now)
		at, ok := c.NextDeadline()
		if len(c.pending) > 0 || !ok {
			t.Fatalf("%d checkpoints in the moment that the last has ended, a deadline %t", len(c.pending), ok)
		}
		waits = append(waits, at.Sub(now))
		now = at
		c.checkLoops(now)
	}
	if waits[0] != 2*loopCheckFirst || waits[7] != loopCheckMax {
		t.Errorf("pauses between looks are %v", waits)
	}
}

// A checkpoint may find that one subtask of a head was told to end and the other
// not yet. After a restore of it the first has ended, and the second waits.
func TestLoopsOfWhichSomeHeadsHadEndedAreEnded(t *testing.T) {
	c := loopCoordinator(t)
	now := time.Unix(1000, 0)
	c.setTask(0, RunningEndOfData)
	c.setTask(1, RunningEndOfData)
	c.setTask(2, RunningInputEnded)
	if c.checkLoops(now); !c.wantsLoopCheck() {
		t.Fatal("nobody looks into the loop")
	}
	acks := []*snapshot.SubtaskState{{EndOfData: true}, {EndOfData: true}, {LoopIsEmpty: true}, {LoopIsEmpty: true}}
	if heads := c.emptyLoops(&pendingCheckpoint{acks: acks}); len(heads) != 1 {
		t.Errorf("heads %v are found empty, want the one", heads)
	}
	c.setTask(2, RunningEndOfData)
	if c.wantsLoopCheck() {
		t.Error("somebody looks into a loop that has ended")
	}
}

func TestJobsWithLoopsAreNotDrained(t *testing.T) {
	c := loopCoordinator(t)
	c.onSavepointRequested(SavepointRequested{Request: 7, Dir: "/savepoints", Stop: true, Drain: true})
	if len(c.effects) != 1 {
		t.Fatalf("effects are %v", c.effects)
	}
	if a, ok := c.effects[0].(Answer); !ok || !strings.Contains(a.Error, "cannot be drained") {
		t.Errorf("the answer is %v", c.effects[0])
	}
}

func TestOnlyEmptyLoopsAreEnded(t *testing.T) {
	ack := func(i int, empty bool, inFlight ...snapshot.InFlight) *snapshot.SubtaskState {
		vertex, index := []int{0, 1, 1, 2}[i], []int32{0, 0, 1, 0}[i]
		return &snapshot.SubtaskState{
			Subtask: ids.SubtaskID{Vertex: ids.VertexID(vertex), Index: index}, LoopIsEmpty: empty, InFlight: inFlight,
		}
	}
	file := snapshot.InFlight{Handle: snapshot.StateHandle{Name: "chk-5/x", Size: 3}, Parts: []snapshot.ChannelPart{{Edge: 1, Length: 3}}}
	for what, acks := range map[string][]*snapshot.SubtaskState{
		"records came round one head":       {ack(0, false), ack(1, true), ack(2, false), ack(3, true)},
		"records are in flight in its body": {ack(0, false), ack(1, true), ack(2, true), ack(3, true, file)},
		"a timer is left in its body":       {ack(0, false), ack(1, true), ack(2, true), ack(3, false)},
	} {
		c := loopCoordinator(t)
		if heads := c.emptyLoops(&pendingCheckpoint{acks: acks}); len(heads) > 0 {
			t.Errorf("%s, and it counts as empty", what)
		}
	}
	c := loopCoordinator(t)
	p := &pendingCheckpoint{id: 5, attempt: c.attempt.id, acks: []*snapshot.SubtaskState{ack(0, false), ack(1, true), ack(2, true), ack(3, true)}}
	p.emptyLoops = c.emptyLoops(p)
	stop := *p
	stop.kind = snapshot.StopSavepoint
	if c.endEmptyLoops(&stop); len(c.effects) > 0 {
		t.Errorf("a stop ends the loop: %v", c.effects)
	}
	c.endEmptyLoops(p)
	if len(c.effects) != 1 || c.effects[0].String() != "EndLoops @tm checkpoint=5 heads=[1/0 1/1]" {
		t.Fatalf("effects are %v", c.effects)
	}
	c.endEmptyLoops(p)
	if len(c.effects) != 1 {
		t.Errorf("it is ended twice: %v", c.effects)
	}
}
