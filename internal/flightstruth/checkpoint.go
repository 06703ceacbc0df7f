package flightstruth

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// The operators of the flights job that have state.
const (
	// Source reads the input.
	Source ids.OperatorUID = "flights"
	// Counts keeps the running counts.
	Counts ids.OperatorUID = "delays"
)

// Checkpoint is what a stored checkpoint of the flights job shows.
type Checkpoint struct {
	ID uint64
	// StateBytes are the sizes of the keyed state of each subtask of Counts.
	StateBytes map[int32]int64
	// Positions are the byte offsets of the splits that the source has begun
	// and not finished.
	Positions []int64
}

// Inspect reads a checkpoint by its path or URI.
func Inspect(ctx context.Context, store *checkpointstore.Store, uri string) (*Checkpoint, error) {
	completed, base, err := store.LoadMetadata(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("inspect checkpoint: %w", err)
	}
	c := &Checkpoint{ID: uint64(completed.ID), StateBytes: map[int32]int64{}}
	for _, operator := range completed.Operators {
		for i, subtask := range operator.Subtasks {
			switch operator.UID {
			case Counts:
				for _, keyed := range subtask.Keyed {
					c.StateBytes[int32(i)] += keyed.Handle.Size
				}
			case Source:
				if err := c.addPositions(ctx, store, base, subtask); err != nil {
					return nil, fmt.Errorf("inspect checkpoint %d: %w", c.ID, err)
				}
			}
		}
	}
	return c, nil
}

// addPositions reads the positions of one source subtask. The file source's
// position is the offset of the next line, in 8 bytes, little-endian.
func (c *Checkpoint) addPositions(ctx context.Context, store *checkpointstore.Store, base string, subtask snapshot.OperatorSubtaskState) error {
	const positionBytes = 8
	for _, list := range subtask.Lists {
		if list.Redistribution != snapshot.ByIndex {
			continue
		}
		content, err := store.ReadState(ctx, base, list.Handle)
		if err != nil {
			return err
		}
		for _, length := range list.Elements {
			if length != positionBytes || int64(len(content)) < length {
				return fmt.Errorf("a position has %d bytes, want %d", length, positionBytes)
			}
			c.Positions = append(c.Positions, int64(binary.LittleEndian.Uint64(content)))
			content = content[length:]
		}
	}
	return nil
}

// StatefulSubtasks are the indexes of the subtasks of Counts that have state in
// the checkpoint, by the TaskManager that runs them.
func (c *Checkpoint) StatefulSubtasks(status *cliresult.JobStatus) map[string][]int32 {
	byTaskManager := map[string][]int32{}
	for _, vertex := range status.Vertices {
		if !slices.Contains(strings.Split(vertex.Name, " -> "), string(Counts)) {
			continue
		}
		for _, subtask := range vertex.Subtasks {
			if c.StateBytes[subtask.Index] > 0 {
				byTaskManager[subtask.TaskManagerID] = append(byTaskManager[subtask.TaskManagerID], subtask.Index)
			}
		}
	}
	return byTaskManager
}

// restoredAtLeast is the earliest checkpoint that proves a restore from the
// middle of the job.
const restoredAtLeast = 2

// ProvesRestore fails unless a restore from the checkpoint was one from the
// middle of the job, with state of the subtasks that were lost.
func (c *Checkpoint) ProvesRestore(lost []int32) error {
	if c.ID < restoredAtLeast {
		return fmt.Errorf("the job was restored from checkpoint %d, want %d or later", c.ID, restoredAtLeast)
	}
	if !c.IsBegun() {
		return fmt.Errorf("checkpoint %d has the source positions %v: the restore was not from the middle", c.ID, c.Positions)
	}
	for _, index := range lost {
		if c.StateBytes[index] == 0 {
			return fmt.Errorf("checkpoint %d has no state of the lost subtask %d", c.ID, index)
		}
	}
	return nil
}

// IsBegun reports whether the source had read something: every split that it
// had begun is past the start of the input.
func (c *Checkpoint) IsBegun() bool {
	for _, position := range c.Positions {
		if position <= 0 {
			return false
		}
	}
	return len(c.Positions) > 0
}
