package subtask

import (
	"io"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Config is what a subtask is made from.
type Config struct {
	Job     ids.JobID
	Attempt ids.AttemptID
	Program *operator.Program
	Graph   *graph.ExecutionGraph
	// Deployment is what the coordinator sent for this subtask.
	Deployment coordinator.TaskDeployment
	// RestoredCheckpoint, RestoreBase, Savepoints and Suspended are as in coordinator.Deployment.
	RestoredCheckpoint ids.CheckpointID
	RestoreBase        string
	Savepoints         []ids.CheckpointID
	Suspended          bool
	// Store writes and reads state files; CheckpointDir is execution.checkpointing.dir.
	Store         *checkpointstore.Store
	CheckpointDir string
	// InlineBytesMax is execution.checkpointing.memory-threshold.
	InlineBytesMax int
	// CreditBytes is the credit that each input channel's producer is given.
	CreditBytes int64
	Backend     statebackend.Backend
	Output      io.Writer
	// NewBuffer gives buffers for outgoing frames; nil for plain allocation.
	NewBuffer func() ([]byte, element.Owner)
}
