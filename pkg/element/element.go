package element

import (
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
)

// Kind tells what a frame carries. The zero value is invalid, so that a
// forgotten field is noticed.
type Kind uint8

// The kinds of frame.
const (
	// Records is a batch of encoded records; only it consumes credit.
	Records Kind = iota + 1
	// BarrierKind separates the records of checkpoint n from those of n+1.
	BarrierKind
	// CancelMarkerKind says that checkpoint n is given up: stop aligning for it.
	CancelMarkerKind
	// WatermarkKind promises that no record with an earlier event time follows.
	WatermarkKind
	// StatusKind says whether the channel is idle or active.
	StatusKind
	// EndOfData says that no further record follows. Barriers still do: a
	// bounded job goes on taking checkpoints until its last one is complete.
	EndOfData
	// EndOfPartition says that nothing at all follows.
	EndOfPartition
)

// String names the kind as the glossary does.
func (k Kind) String() string {
	switch k {
	case Records:
		return "records"
	case BarrierKind:
		return "barrier"
	case CancelMarkerKind:
		return "cancel-marker"
	case WatermarkKind:
		return "watermark"
	case StatusKind:
		return "status"
	case EndOfData:
		return "end-of-data"
	case EndOfPartition:
		return "end-of-partition"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Alignment says how a barrier and the records in front of it pass each other.
type Alignment uint8

// The alignments.
const (
	// Aligned barriers keep their place; a subtask holds back the channels that
	// delivered one until all have. With Barrier.AlignedTimeout one that
	// has waited for longer becomes Unaligned.
	Aligned Alignment = iota
	// AtLeastOnce barriers keep their place and hold nothing back.
	AtLeastOnce
	// Unaligned barriers overtake records. What they overtook is part of the
	// checkpoint. On edges where that cannot be (ExecutionGraph.OvertakableEdges)
	// they align.
	Unaligned
)

// String names the alignment.
func (a Alignment) String() string {
	switch a {
	case Aligned:
		return "aligned"
	case AtLeastOnce:
		return "at-least-once"
	case Unaligned:
		return "unaligned"
	}
	return fmt.Sprintf("alignment(%d)", uint8(a))
}

// Barrier is the in-band marker of a checkpoint.
type Barrier struct {
	Checkpoint ids.CheckpointID
	// Savepoint is set when a user asked for this checkpoint: sinks prepare
	// but nothing is committed on its completion alone.
	Savepoint bool
	// Stop is set for stop-with-savepoint: a source emits nothing after it.
	Stop bool
	// Drain is set with Stop when event time is to come to its end first: a
	// source ends its data before it emits the barrier.
	Drain     bool
	Alignment Alignment
	// AlignedTimeout is how many milliseconds an Aligned barrier may wait in
	// or in front of a subtask before it becomes Unaligned there; 0 for ever.
	AlignedTimeout int64
	// SavepointDir is the directory (path or URI) below which a savepoint gets
	// its own directory, see checkpointstore.SavepointLocation; empty for a checkpoint.
	SavepointDir string
	// Base is the published checkpoint whose shared files the snapshots of this
	// one may refer to instead of uploading them again; 0 for none. The
	// coordinator keeps those files until this checkpoint is completed or
	// given up. That the barrier names it, and no subtask chooses, is what
	// makes late notifications harmless.
	Base ids.CheckpointID
}

// Frame is one unit of transfer on a channel. It is passed by value; Data is
// shared, not copied, and belongs to the receiver until it calls Free.
type Frame struct {
	Kind    Kind
	Barrier Barrier // BarrierKind; CancelMarkerKind uses Barrier.Checkpoint
	// Watermark is the event time in milliseconds since the Unix epoch (WatermarkKind).
	Watermark int64
	// Idle is the new status of the channel (StatusKind).
	Idle bool
	// Count is the number of records in Data (Records).
	Count int
	// Data holds the encoded records one after the other (Records).
	Data []byte
	// Owner, if not nil, takes Data back when the frame has been consumed.
	Owner Owner
}

// Owner recycles the memory behind a frame. Free is called at most once, by
// the goroutine that consumed the frame.
type Owner interface{ Free() }

// Free hands the memory behind the frame back. The frame must not be used
// afterwards. Calling it on a frame without an owner does nothing.
func (f *Frame) Free() {
	if f.Owner != nil {
		f.Owner.Free()
		f.Owner = nil
	}
	f.Data = nil
}

// String prints the frame for traces.
func (f Frame) String() string {
	switch f.Kind {
	case Records:
		return fmt.Sprintf("records(%d, %dB)", f.Count, len(f.Data))
	case BarrierKind, CancelMarkerKind:
		return fmt.Sprintf("%s(%d)", f.Kind, f.Barrier.Checkpoint)
	case WatermarkKind:
		return fmt.Sprintf("watermark(%d)", f.Watermark)
	case StatusKind:
		return fmt.Sprintf("status(idle=%t)", f.Idle)
	case EndOfData, EndOfPartition:
		return f.Kind.String()
	}
	return f.Kind.String()
}

// BarrierFrame makes the frame of a barrier.
func BarrierFrame(b Barrier) Frame { return Frame{Kind: BarrierKind, Barrier: b} }

// CancelFrame makes the frame of a cancel marker.
func CancelFrame(id ids.CheckpointID) Frame {
	return Frame{Kind: CancelMarkerKind, Barrier: Barrier{Checkpoint: id}}
}
