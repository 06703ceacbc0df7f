package operator

import (
	"context"
	"io"
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Collector takes the records of one stream inside a subtask. An error ends
// the attempt: it is an error of user code or of the runtime, never a
// condition to wait for.
type Collector[T any] interface {
	Collect(v T) error
}

// Context is what an operator is told about where it runs.
type Context struct {
	Job      ids.JobID
	JobName  string
	Operator ids.OperatorUID
	Attempt  ids.AttemptID
	// Index is the number of the subtask among Parallelism.
	Index, Parallelism int
	MaxParallelism     int
	// KeyGroups is the range whose keys this subtask owns.
	KeyGroups keygroup.Range
	// RestoredCheckpoint is 0 when the job started without state.
	RestoredCheckpoint ids.CheckpointID
	// Savepoints are the completed savepoints of this job: a sink keeps what they need.
	Savepoints []ids.CheckpointID
	// Output takes lines for the job's users to read with flinkctl logs.
	Output io.Writer
	// Backend opens the keyed state of keyed operators.
	Backend statebackend.Backend
	// Dir is a directory on local disk for the operator's state alone; it may
	// not exist yet.
	Dir string
	// Now is the clock that states with time-to-live go by; nil if the runtime
	// has none. It is read once for several records.
	Now func() time.Time
	// lists is the operator state of an operator of this package.
	lists *state.Operator
	// Time is shared by the operators of the chain.
	Time *Time
	// Watermark is the event time that the operator's input has reached; it
	// never goes back. watermark.None before the first.
	Watermark int64
	// LeaveIdle is called by a WatermarkGenerator before it passes on the
	// record that ends its idle time.
	LeaveIdle func()
}

// Operator is the life of one operator in one subtask, without its record
// path. Calls come from the subtask's goroutine in the order Open, Restore,
// then Freeze and Finish as they happen, last Close (also after errors).
type Operator interface {
	// Open registers states and acquires what the operator needs.
	Open(ctx *Context) error
	// Restore gives it the state of the restored checkpoint; called once, also
	// when there is none. It may read and take long: it runs before the
	// subtask processes anything, on a goroutine of its own.
	Restore(ctx context.Context, r *Restored) error
	// Freeze is the synchronous part of a snapshot: after it returns,
	// processing goes on and must not change what Frozen writes. It is short,
	// whatever the size of the state.
	Freeze(b element.Barrier) (Frozen, error)
	// Finish is called once, when all inputs have ended and nothing follows:
	// the last chance to emit.
	Finish() error
	// Close releases everything. It is called exactly once.
	Close() error
}

// Frozen is the asynchronous part of a snapshot of one operator. Write is
// called at most once, on another goroutine than the operator's; Release
// exactly once, afterwards or instead.
type Frozen interface {
	Write(ctx context.Context, w SnapshotWriter) error
	Release()
}

// SnapshotWriter takes the parts of an operator's snapshot and stores them.
type SnapshotWriter interface {
	// Keyed stores a frozen keyed state. Releasing it is left to the caller.
	Keyed(f statebackend.Frozen) error
	// List stores a named list of operator state. indexes is nil but for
	// snapshot.ByIndex, states describe what the program registered and the list
	// holds. A list without elements is stored for its states alone.
	List(name string, mode snapshot.Redistribution, elements [][]byte, indexes []int64, states ...snapshot.StateMeta) error
}

// Restored is the state that one operator in one subtask starts from.
type Restored struct {
	// Checkpoint is 0 when there is none.
	Checkpoint ids.CheckpointID
	// Keyed are the keyed parts that touch the subtask's key groups.
	Keyed []statebackend.RestoredPart
	// Lists holds the elements of each named list that this subtask gets.
	Lists map[string][]ListElement
	// Dropped are the broadcast maps in Lists that the user has let go.
	Dropped []string
	// EndOfData is set when the subtask had finished before the checkpoint.
	EndOfData bool
}

// ListElement is one element of a list of operator state.
type ListElement struct {
	// Index is the element's identity for snapshot.ByIndex, else 0.
	Index int64
	Bytes []byte
}

// Stateless is embedded by operators without state: it does nothing.
type Stateless struct{}

// Open does nothing.
func (Stateless) Open(*Context) error { return nil }

// Restore does nothing.
func (Stateless) Restore(context.Context, *Restored) error { return nil }

// Freeze has nothing to write.
func (Stateless) Freeze(element.Barrier) (Frozen, error) { return nil, nil }

// Finish does nothing.
func (Stateless) Finish() error { return nil }

// Close does nothing.
func (Stateless) Close() error { return nil }
