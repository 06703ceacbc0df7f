package operator

import "github.com/weirstream/weir/pkg/element"

// CutBytes is the size at which a batch of records is cut into a frame. At
// about 32 KiB gRPC's cost per message is small against the copying, and a
// frame still fits the second-level cache of a core together with what reads
// it. A little below, a frame with the record that crosses the mark still fits
// the 32 KiB buffers that gRPC reads into; the next size it has is 1 MiB.
const CutBytes = 28 << 10

// Outbox takes the frames that a Writer cuts. It belongs to the subtask.
type Outbox interface {
	// Emit takes a frame for output channel ch of the writer's edge.
	Emit(edge, ch int, f element.Frame)
	// NewBuffer gives an empty buffer of capacity for CutBytes and one more
	// small record, and its owner.
	NewBuffer() ([]byte, element.Owner)
	// CutAt is the size at which the next batch for output channel ch is to be
	// cut: CutBytes, or less where the consumer takes less at a time.
	CutAt(edge, ch int) int
}

// Writer collects the encoded records of one outgoing edge of a subtask, one
// buffer per channel. It belongs to the subtask's goroutine.
type Writer struct {
	// Channels are the buffers by output channel. Outputs append to them.
	Channels []ChannelBuffer
	edge     int
	outbox   Outbox
	// Subtask is the index of the producing subtask, Parallelism that of the
	// consumer, MaxParallelism the number of key groups: what a partitioner needs.
	Subtask, Parallelism, MaxParallelism int
	// Time has the timestamps of the records written; nil in a Writer that no
	// chain was assembled with.
	Time    *Time
	records int64
}

// ChannelBuffer is the batch being filled for one channel.
type ChannelBuffer struct {
	Data  []byte
	Count int
	// Limit is the size of Data at which the batch is cut.
	Limit int
	owner element.Owner
}

// NewWriter makes the writer of the edge with the given position among the
// subtask's outgoing edges.
func NewWriter(outbox Outbox, edge, channels, subtask, parallelism, maxParallelism int) *Writer {
	w := &Writer{
		Channels: make([]ChannelBuffer, channels), edge: edge, outbox: outbox,
		Subtask: subtask, Parallelism: parallelism, MaxParallelism: maxParallelism,
	}
	for i := range w.Channels {
		w.Channels[i].Data, w.Channels[i].owner = outbox.NewBuffer()
		w.Channels[i].Limit = outbox.CutAt(edge, i)
	}
	return w
}

// Cut sends what channel ch has collected, if anything.
func (w *Writer) Cut(ch int) {
	b := &w.Channels[ch]
	if b.Count == 0 {
		return
	}
	f := element.Frame{Kind: element.Records, Count: b.Count, Data: b.Data, Owner: b.owner}
	w.records += int64(b.Count)
	b.Count = 0
	b.Data, b.owner = w.outbox.NewBuffer()
	w.outbox.Emit(w.edge, ch, f)
	b.Limit = w.outbox.CutAt(w.edge, ch)
}

// Flush cuts every channel.
func (w *Writer) Flush() {
	for ch := range w.Channels {
		w.Cut(ch)
	}
}

// Records is the number of records sent so far, those in open buffers included.
func (w *Writer) Records() int64 {
	n := w.records
	for i := range w.Channels {
		n += int64(w.Channels[i].Count)
	}
	return n
}

// Close gives the open buffers back without sending them.
func (w *Writer) Close() {
	for i := range w.Channels {
		if o := w.Channels[i].owner; o != nil {
			o.Free()
		}
		w.Channels[i] = ChannelBuffer{}
	}
}
