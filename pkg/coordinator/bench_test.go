package coordinator

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// BenchmarkCheckpoint is the work of a whole checkpoint of three vertices:
// trigger, acknowledgements, metadata, publication, commits. It is to grow
// with the parallelism and not faster. internal/bench measures the same with what
// the JobManager has to do around it.
func BenchmarkCheckpoint(b *testing.B) {
	for _, parallelism := range []int{200, 500, 1000, 2000} {
		b.Run(fmt.Sprint(parallelism), func(b *testing.B) { benchmarkCheckpoint(b, parallelism) })
	}
}

func benchmarkCheckpoint(b *testing.B, parallelism int) {
	g, err := graph.Expand(graph.JobGraph{
		Name: "test", MaxParallelism: 2048,
		Operators: []graph.Operator{
			{UID: "src", Kind: graph.SourceOperator},
			{UID: "count", Kind: graph.ProcessOperator, KeyType: "string"},
			{UID: "out", Kind: graph.SinkOperator, TwoPhase: true},
		},
		Edges: []graph.Edge{{From: "src", To: "count", Partitioner: graph.Hash}, {From: "count", To: "out", Partitioner: graph.Rebalance}},
	}, parallelism)
	if err != nil {
		b.Fatal(err)
	}
	c := New(testConfig(), g)
	c.Step(epoch, DeadlinePassed{})
	c.Step(epoch, JobClaimed{Token: 1, Record: Record{Status: Created}})
	c.Step(epoch, RecordUpdated{Token: 1, Revision: 1})
	const slotsOfOne = 10
	var leased []Slot
	for i := range parallelism {
		leased = append(leased, Slot{TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", i/slotsOfOne)), Index: int32(i % slotsOfOne)})
	}
	c.Step(epoch, SlotsGranted{Attempt: c.attempt.id, Slots: leased})
	for i := range parallelism / slotsOfOne {
		c.Step(epoch, ExecutorReady{Executor: ids.ExecutorID{Job: testJob, Attempt: c.attempt.id, TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", i))}})
	}
	for _, s := range c.layout.subtasks {
		c.Step(epoch, TaskStatusChanged{Attempt: c.attempt.id, Subtask: s, Status: Running})
	}
	c.Step(epoch, RecordUpdated{Token: 1, Revision: 2})
	b.ReportAllocs()
	for b.Loop() {
		now, _ := c.NextDeadline()
		c.Step(now, DeadlinePassed{})
		id := c.pending[0].id
		for _, s := range c.layout.subtasks {
			state := snapshot.SubtaskState{Subtask: s, Operators: []snapshot.OperatorSubtaskState{{
				UID: g.Vertices[s.Vertex].Chain[0],
				Lists: []snapshot.OperatorStateHandle{{
					Name: "l", Redistribution: snapshot.SplitEvenly, Handle: snapshot.StateHandle{Name: fmt.Sprintf("chk-%d/%s", id, s), Size: 1},
				}},
			}}}
			c.Step(now, CheckpointAcked{Attempt: c.attempt.id, Checkpoint: id, State: state})
		}
		c.Step(now, MetadataPersisted{Token: 1, Checkpoint: id, URI: "chk"})
		c.Step(now, CheckpointPublished{Token: 1, Checkpoint: id})
		for _, s := range c.layout.subtasks {
			c.Step(now, CommitAcked{Attempt: c.attempt.id, Checkpoint: id, Subtask: s})
		}
	}
	if c.aborted != 0 || c.completed == 0 {
		b.Fatalf("%d checkpoints completed, %d did not", c.completed, c.aborted)
	}
}

// BenchmarkStatus is what a driver does after every event.
func BenchmarkStatus(b *testing.B) {
	c := New(testConfig(), testGraph(b, 100))
	c.Step(epoch, DeadlinePassed{})
	b.ReportAllocs()
	for range b.N {
		c.Status()
	}
}
