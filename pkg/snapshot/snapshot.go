package snapshot

import (
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
)

// StateHandle is an inert reference to stored bytes.
type StateHandle struct {
	// Name is the object's name relative to the directory of its job's
	// checkpoints (or of its savepoint); empty when the bytes are inline.
	Name string
	// Size is the number of bytes of the object.
	Size int64
	// CRC32C is the Castagnoli checksum of the whole object, verified on restore.
	CRC32C uint32
	// Inline holds the bytes themselves when they are few (see
	// execution.checkpointing.memory-threshold).
	Inline []byte
	// SharedSince is the checkpoint that the object was uploaded for, if later
	// checkpoints may refer to it too: it is deleted when nothing refers to it
	// any more. 0 for an object that is private to its checkpoint.
	SharedSince ids.CheckpointID
}

// IsShared reports whether several checkpoints may refer to the object.
func (h StateHandle) IsShared() bool { return h.SharedSince != 0 }

// IsInline reports whether the bytes travel in the handle.
func (h StateHandle) IsInline() bool { return h.Name == "" }

// StateMeta describes one registered state: enough to refuse to read its
// bytes with the wrong codec.
type StateMeta struct {
	Name   string
	Kind   string // "value", "reduce", …
	Codec  string // codec name and version
	Schema string // schema of the value in the codec's own notation
	// KeySchema is the schema of the key (keyed state only).
	KeySchema string
	// SchemaID is what values stored under Codec and Schema have in their header.
	SchemaID uint64
	// Earlier are the schemas of values that earlier versions of the program
	// stored and that are carried along unchanged, by ascending ID. Canonical
	// snapshots have none.
	Earlier []StoredSchema
}

// Equal reports whether two descriptions are the same.
func (m StateMeta) Equal(o StateMeta) bool {
	return m.Name == o.Name && m.Kind == o.Kind && m.Codec == o.Codec && m.Schema == o.Schema && m.KeySchema == o.KeySchema &&
		m.SchemaID == o.SchemaID && slices.Equal(m.Earlier, o.Earlier)
}

// StoredSchema is a schema that values were stored under.
type StoredSchema struct {
	ID            uint64
	Codec, Schema string
}

// KeyedStateHandle refers to keyed state of one subtask, in one of two forms.
//
// Canonical, which every backend writes and reads: Handle is laid out by key
// group, the bytes of group Range.First+i are Offsets[i] to Offsets[i+1].
//
// In files, for incremental checkpoints: Backend names the state backend, and
// Files are what it keeps its state in. Handle and Offsets are zero.
type KeyedStateHandle struct {
	Handle  StateHandle
	Range   keygroup.Range
	Offsets []int64 // Range.Len()+1 entries
	States  []StateMeta
	Backend string
	Files   []StateFile
}

// IsInFiles reports whether the state is in files of its backend.
func (k KeyedStateHandle) IsInFiles() bool { return k.Backend != "" }

// EachHandle calls f for every handle of the keyed state.
func (k KeyedStateHandle) EachHandle(f func(StateHandle)) {
	if !k.IsInFiles() {
		f(k.Handle)
		return
	}
	for _, file := range k.Files {
		f(file.Handle)
	}
}

// StateFile is one file of keyed state in files.
type StateFile struct {
	// Local is the backend's own name for the file, unique in its handle.
	Local  string
	Handle StateHandle
}

// Redistribution says how a list of operator state is spread over subtasks on restore.
type Redistribution uint8

// The redistribution modes, as in Flink.
const (
	// SplitEvenly deals the elements out, each to one subtask.
	SplitEvenly Redistribution = iota + 1
	// Union gives every element to every subtask.
	Union
	// ByIndex gives element with index i to subtask i mod parallelism: source splits.
	ByIndex
)

// OperatorStateHandle refers to one named list of operator state of one
// subtask: a list of the program's or of the runtime's, or the one that holds
// all broadcast maps.
type OperatorStateHandle struct {
	Name           string
	Redistribution Redistribution
	Handle         StateHandle
	// Elements are the lengths in bytes of the elements, in order.
	Elements []int64
	// Indexes, for ByIndex only, are the index of each element.
	Indexes []int64
	// Selected restricts a restored handle to these elements (positions in
	// Elements, ascending); nil means all. Stored checkpoints have none.
	Selected []int32
	// States are what the program registered and the list holds: a list, or
	// broadcast maps. The runtime's own lists have none, nor had those that
	// earlier versions stored. A restored handle has only those that are of
	// DroppedKind, which whoever restores skips.
	States []StateMeta
}

// OperatorSubtaskState is the snapshot of one operator in one subtask. The
// lists have one entry normally, more after a rescale.
type OperatorSubtaskState struct {
	UID   ids.OperatorUID
	Keyed []KeyedStateHandle
	Lists []OperatorStateHandle
}

// SubtaskState is what a subtask acknowledges: the snapshots of its operators.
type SubtaskState struct {
	Subtask   ids.SubtaskID
	Operators []OperatorSubtaskState
	// EndOfData is set when the subtask had seen the end of all its inputs:
	// after a restore its operators' Finish is not called again.
	EndOfData bool
	// InFlight are the records that the barrier overtook here, if any.
	InFlight []InFlight
	// Emitted has the watermarks of the outgoing edges that records may be in
	// flight on.
	Emitted []EmittedWatermark
	// LoopIsEmpty is set by subtasks of a loop in which event time has come to its
	// end: nothing comes in any more, and no timer is left that was due. The head
	// sets it if moreover nothing has come round to it between its barrier and that
	// barrier's return.
	LoopIsEmpty bool
}

// SubtaskStats is what a subtask measured of its part of a checkpoint, by the
// clock of its host.
type SubtaskStats struct {
	// Alignment is the time from the first barrier to the snapshot; 0 for a
	// source, which has one barrier.
	Alignment time.Duration
	// Sync is the part of the snapshot in which no record was processed, Async
	// the time from there to the acknowledgement.
	Sync, Async time.Duration
	// ProcessedBytes of records were processed from the first barrier to the
	// last; PersistedBytes were stored as channel state.
	ProcessedBytes, PersistedBytes int64
	// Unaligned: the barrier overtook records here.
	Unaligned bool
}

// Split is one entry of a source's split list. Its place in the list is its
// identity: split i belongs to subtask i mod parallelism.
type Split struct {
	// Data is the source's own description of the split.
	Data []byte
}

// SplitList is the ordered list of splits a source has discovered so far.
type SplitList struct {
	UID    ids.OperatorUID
	Splits []Split
	// Complete is set when the source said that no further split will come.
	Complete bool
}

// OperatorState is the state of one operator over all its subtasks.
type OperatorState struct {
	UID            ids.OperatorUID
	Parallelism    int
	MaxParallelism int
	Subtasks       []OperatorSubtaskState // by index
}

// Kind tells why a checkpoint was taken.
type Kind uint8

// The kinds of checkpoint.
const (
	Checkpoint Kind = iota + 1
	Savepoint
	// StopSavepoint is the savepoint of stop: once published, the job ends.
	StopSavepoint
	// FinalCheckpoint is the one a bounded job takes after all inputs ended.
	FinalCheckpoint
)

// String names the kind in words that the CLI shows.
func (k Kind) String() string {
	switch k {
	case Checkpoint:
		return "checkpoint"
	case Savepoint:
		return "savepoint"
	case StopSavepoint:
		return "stop-savepoint"
	case FinalCheckpoint:
		return "final-checkpoint"
	}
	return "unknown"
}

// CompletedCheckpoint is everything needed to restore a job: the content of
// a _metadata object.
type CompletedCheckpoint struct {
	Job     ids.JobID
	ID      ids.CheckpointID
	Attempt ids.AttemptID
	Kind    Kind
	// TriggeredAt and CompletedAt are the JobManager's clock, for display only.
	TriggeredAt, CompletedAt time.Time
	Operators                []OperatorState
	Splits                   []SplitList
	// EndOfData has the subtasks (operator UID of the chain head, index) that had ended.
	EndOfData []EndedSubtask
	// JobName is for display.
	JobName string
	// Savepoints are the completed savepoints of the job that exist beside
	// this checkpoint: what they need must not be removed from sinks.
	Savepoints []ids.CheckpointID
	// InFlight are the records that barriers overtook, by subtask that stored
	// them; ChannelPart.Edge is a place in Edges, which has all edges of the
	// graph if records may be in flight on any.
	InFlight []InFlight
	Edges    []EdgeState
}

// EndedSubtask names a subtask by the UID of its chain's head.
type EndedSubtask struct {
	UID   ids.OperatorUID
	Index int32
}

// Size is the number of stored bytes of all handles.
func (c *CompletedCheckpoint) Size() int64 {
	var n int64
	c.EachHandle(func(h StateHandle) { n += h.Size })
	return n
}

// EachHandle calls f for every state handle in a fixed order.
func (c *CompletedCheckpoint) EachHandle(f func(StateHandle)) {
	for _, op := range c.Operators {
		for _, st := range op.Subtasks {
			st.EachHandle(f)
		}
	}
	for _, in := range c.InFlight {
		f(in.Handle)
	}
}

// EachHandle calls f for every state handle of the operator snapshot.
func (s OperatorSubtaskState) EachHandle(f func(StateHandle)) {
	for _, k := range s.Keyed {
		k.EachHandle(f)
	}
	for _, l := range s.Lists {
		f(l.Handle)
	}
}

// EachHandle calls f for every state handle of the subtask.
func (s SubtaskState) EachHandle(f func(StateHandle)) {
	for _, op := range s.Operators {
		op.EachHandle(f)
	}
	for _, in := range s.InFlight {
		f(in.Handle)
	}
}
