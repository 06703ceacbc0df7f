package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Savepoints of a job that runs for long fail again and again. What is remembered
// of them is bounded, and what is forgotten is looked into once more before.
func TestLeftoversOfSavepointsAreBounded(t *testing.T) {
	c := loopCoordinator(t)
	c.record.blockEnd = 1000
	now := time.Unix(1000, 0)
	discards := map[ids.CheckpointID]int{}
	step := func(ev Event) {
		t.Helper()
		for _, e := range c.Step(now, ev) {
			if d, ok := e.(DiscardHandles); ok {
				if want := fmt.Sprintf("DiscardHandles checkpoint=%d [] metadata dir=sp", d.Checkpoint); d.String() != want {
					t.Errorf("effect is %q, want %q", d, want)
				}
				discards[d.Checkpoint]++
			}
		}
	}
	first := c.nextID
	const more = 10
	for i := range leftoversMax + more {
		step(SavepointRequested{Request: RequestID(i + 1), Dir: "sp"})
		step(CheckpointDeclined{Attempt: c.attempt.id, Checkpoint: c.nextID - 1, Subtask: ids.SubtaskID{Vertex: 1}, Reason: "disk full"})
	}
	if len(c.leftovers) != leftoversMax {
		t.Errorf("%d are remembered, want %d", len(c.leftovers), leftoversMax)
	}
	for id := first; id < c.nextID; id++ {
		want := 1
		if id < first+more {
			want = 2
		}
		if discards[id] != want {
			t.Errorf("the directory of savepoint %d was discarded %d times, want %d", id, discards[id], want)
		}
	}
	for i := range c.attempt.status {
		step(TaskStatusChanged{Attempt: c.attempt.id, Subtask: c.layout.subtasks[i], Status: Failed, Failure: Failure{Kind: PermanentFailure}})
	}
	for c.record.updating {
		step(RecordUpdated{Token: c.token, Revision: c.record.revision})
	}
	if c.phase != phaseEnded || len(c.leftovers) > 0 {
		t.Errorf("phase %d, %d are remembered at the end", c.phase, len(c.leftovers))
	}
	for id := first; id < c.nextID; id++ {
		if discards[id] != 2 {
			t.Errorf("the directory of savepoint %d was discarded %d times by the end, want 2", id, discards[id])
		}
	}
}

// The metadata of a savepoint that was given up was being written: that write may have
// no known outcome and come later, so its directory is looked into once more too.
func TestSavepointsGivenUpWhileTheirMetadataIsWrittenAreLeftovers(t *testing.T) {
	for kind, want := range map[snapshot.Kind]int{snapshot.Savepoint: 1, snapshot.Checkpoint: 0} {
		c := loopCoordinator(t)
		c.unsettled = []*pendingCheckpoint{{id: 7, kind: kind, dir: "sp"}}
		if !c.settle(7) {
			t.Fatalf("%s 7 was being written", kind)
		}
		if len(c.leftovers) != want {
			t.Errorf("%s 7: %d directories are looked into once more, want %d", kind, len(c.leftovers), want)
		}
	}
}
