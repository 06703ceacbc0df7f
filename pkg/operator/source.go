package operator

import "context"

// Source lists the splits of an input and opens readers on them. A Source is
// a description made when the graph is built: it must not touch the input
// before ListSplits or OpenReader is called.
type Source[T any] interface {
	// ListSplits returns the splits. complete says that no further one will
	// ever come, so that the job can end. It runs on a goroutine of its own,
	// in one subtask of the job, and once: the list is part of every
	// checkpoint and is never computed again.
	// An input that is missing is a Permanent error.
	ListSplits(ctx context.Context, sc SourceContext) (splits [][]byte, complete bool, err error)
	// OpenReader opens a reader on a split. position is nil for the start, or
	// what a Batch of this split gave as its Position. It may block.
	OpenReader(ctx context.Context, sc SourceContext, split, position []byte) (Reader[T], error)
	// Describe gives the options as they take part in the graph's
	// fingerprint: no secrets, nothing that differs between hosts.
	Describe() Description
}

// SourceContext is what a source is told about where it runs.
type SourceContext struct {
	*Context
}

// Description is what a connector says about itself.
type Description struct {
	// Options are sorted by key before use.
	Options map[string]string
	// Bounded is set for sources that end.
	Bounded bool
}

// Reader reads one split. Fetch runs on a goroutine of its own and is not
// called again before the batch it returned has been read to its end.
type Reader[T any] interface {
	// Fetch waits for records. It returns io.EOF when the split has ended, and
	// ctx's error soon after ctx ends. An empty batch is allowed.
	Fetch(ctx context.Context) (Batch[T], error)
	// Close releases the reader; never during a Fetch.
	Close() error
}

// Batch is a run of records of one split, read by the subtask's goroutine.
type Batch[T any] interface {
	// Next stores the next record in v, or returns false at the batch's end.
	// It does not block. After an error the batch is not used again.
	Next(v *T) (bool, error)
	// Position is where a reader must be opened so that the next record is the
	// one that Next would return now. It is only called between two records,
	// and the bytes must not change afterwards.
	Position() []byte
}
