package coordinator

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// BenchmarkCheckpoint is the work of a whole checkpoint at parallelism 200:
// trigger, 400 acknowledgements, metadata, publication, 400 commits.
func BenchmarkCheckpoint(b *testing.B) {
	const parallelism = 200
	g := testGraph(b, 1)
	for i := range g.Job.Operators {
		g.Job.Operators[i].Parallelism = parallelism
	}
	for i := range g.Vertices {
		g.Vertices[i].Parallelism = parallelism
	}
	g.MaxParallelism = 256
	c := New(testConfig(), g)
	c.Step(epoch, DeadlinePassed{})
	c.Step(epoch, JobClaimed{Token: 1, Record: Record{Status: Created}})
	c.Step(epoch, RecordUpdated{Token: 1, Revision: 1})
	var leased []Slot
	for i := range parallelism {
		leased = append(leased, Slot{TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", i%20)), Index: int32(i / 20)})
	}
	c.Step(epoch, SlotsGranted{Attempt: c.attempt.id, Slots: leased})
	for i := range 20 {
		c.Step(epoch, ExecutorReady{Executor: ids.ExecutorID{Job: testJob, Attempt: c.attempt.id, TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", i))}})
	}
	for _, s := range c.layout.subtasks {
		c.Step(epoch, TaskStatusChanged{Attempt: c.attempt.id, Subtask: s, Status: Running})
	}
	c.Step(epoch, RecordUpdated{Token: 1, Revision: 2})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
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
	if c.completed != int64(b.N) {
		b.Fatalf("%d of %d checkpoints completed", c.completed, b.N)
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
