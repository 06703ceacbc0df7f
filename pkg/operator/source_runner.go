package operator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/snapshot"
)

// SourceRunner drives the source of one subtask, without its record type.
// Like the operator it belongs to, it is used by the subtask's goroutine
// only; the functions that List and NextFetch return run elsewhere.
type SourceRunner interface {
	// List returns the work of listing the splits.
	List() func(ctx context.Context) ([]snapshot.Split, bool, error)
	// Assign gives the subtask splits by their places in the split list.
	// complete says that none will follow. A split it already has is ignored.
	Assign(indexes []int64, splits []snapshot.Split, complete bool)
	// NextFetch returns the work of getting the next batch, if there is no
	// batch and no fetch under way. Its result goes to Fetched.
	NextFetch() (fetch func(ctx context.Context) FetchResult, ok bool)
	// Fetched takes the result of a fetch.
	Fetched(r FetchResult) error
	// Process passes records of the current batch on until its end or until
	// pace says stop, and returns how many and whether the batch has more.
	Process(pace *Pace) (records int, more bool, err error)
	// HasBatch reports whether Process has something to do.
	HasBatch() bool
	// Ended reports whether every split has been read and none will follow.
	Ended() bool
}

// FetchResult is the outcome of a fetch; only the runner that made the fetch
// reads it.
type FetchResult struct {
	batch  any
	reader any
	err    error
}

// NewSource makes the operator and runner of a source in one subtask.
func NewSource[T any](src Source[T], out Collector[T]) Instance {
	r := &sourceRunner[T]{src: src, out: out, splits: map[int64]*splitState{}, finished: bitmap{}}
	return Instance{Operator: r, Source: r}
}

// Names of the lists in a source's snapshot.
const (
	splitsList   = "splits"   // ByIndex: the position of each unfinished split that was begun
	finishedList = "finished" // Union: bitmaps of the finished splits of each subtask
)

type splitState struct {
	index    int64
	data     []byte
	position []byte // nil: not begun
}

// sourceRunner reads its splits one after the other, in order of their index.
type sourceRunner[T any] struct {
	src Source[T]
	out Collector[T]
	ctx *Context

	splits   map[int64]*splitState // unfinished, by index
	order    []int64               // unfinished, ascending
	finished bitmap                // of all subtasks as restored, plus our own
	mine     bitmap                // finished by this subtask, or restored into its share
	complete bool
	restored map[int64][]byte // positions of splits that are not assigned yet

	current  *splitState
	reader   Reader[T]
	batch    Batch[T]
	fetching bool
	closed   bool
	v        T
}

// Open implements Operator.
func (r *sourceRunner[T]) Open(ctx *Context) error {
	r.ctx = ctx
	return nil
}

// Restore implements Operator.
func (r *sourceRunner[T]) Restore(_ context.Context, st *Restored) error {
	r.restored = map[int64][]byte{}
	for _, e := range st.Lists[splitsList] {
		r.restored[e.Index] = e.Bytes
	}
	for _, e := range st.Lists[finishedList] {
		b, err := decodeBitmap(e.Bytes)
		if err != nil {
			return fmt.Errorf("read finished splits: %w", err)
		}
		r.finished.or(b)
	}
	for i := range r.finished.all() {
		if int(i%int64(r.ctx.Parallelism)) == r.ctx.Index {
			r.mine.set(i)
		}
	}
	return nil
}

// List implements SourceRunner.
func (r *sourceRunner[T]) List() func(ctx context.Context) ([]snapshot.Split, bool, error) {
	sc := SourceContext{Context: r.ctx}
	return func(ctx context.Context) ([]snapshot.Split, bool, error) {
		list, complete, err := r.src.ListSplits(ctx, sc)
		if err != nil {
			return nil, false, fmt.Errorf("list splits of %s: %w", sc.Operator, err)
		}
		out := make([]snapshot.Split, len(list))
		for i, s := range list {
			out[i] = snapshot.Split{Data: s}
		}
		return out, complete, nil
	}
}

// Assign implements SourceRunner.
func (r *sourceRunner[T]) Assign(indexes []int64, splits []snapshot.Split, complete bool) {
	for i, index := range indexes {
		invariant.Check(int(index%int64(r.ctx.Parallelism)) == r.ctx.Index, "I7",
			"split %d of %s was assigned to subtask %d of %d", index, r.ctx.Operator, r.ctx.Index, r.ctx.Parallelism)
		if r.finished.has(index) || r.splits[index] != nil {
			continue
		}
		s := &splitState{index: index, data: splits[i].Data, position: r.restored[index]}
		delete(r.restored, index)
		r.splits[index] = s
		r.order = append(r.order, index)
	}
	slices.Sort(r.order)
	r.complete = r.complete || complete
	r.tellSplit()
}

// tellSplit keeps the chain's Time up to date on which split is read: a
// watermark must not run ahead of splits that wait for their turn.
func (r *sourceRunner[T]) tellSplit() {
	t := r.ctx.Time
	if t == nil {
		return
	}
	waiting := len(r.order)
	if r.current != nil {
		t.Split = r.current.index
		waiting--
	}
	t.SplitsWait = waiting > 0 || len(r.restored) > 0
}

// NextFetch implements SourceRunner.
func (r *sourceRunner[T]) NextFetch() (func(ctx context.Context) FetchResult, bool) {
	if r.fetching || r.batch != nil || r.closed {
		return nil, false
	}
	if r.current == nil {
		if len(r.order) == 0 {
			return nil, false
		}
		r.current = r.splits[r.order[0]]
		r.tellSplit()
	}
	r.fetching = true
	reader, split, sc := r.reader, r.current, SourceContext{Context: r.ctx}
	data, position := split.data, split.position
	return func(ctx context.Context) FetchResult {
		if reader == nil {
			opened, err := r.src.OpenReader(ctx, sc, data, position)
			if err != nil {
				return FetchResult{err: fmt.Errorf("open split %d of %s: %w", split.index, sc.Operator, err)}
			}
			reader = opened
		}
		batch, err := reader.Fetch(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("read split %d of %s: %w", split.index, sc.Operator, err)
		}
		return FetchResult{batch: batch, reader: reader, err: err}
	}, true
}

// Fetched implements SourceRunner.
func (r *sourceRunner[T]) Fetched(res FetchResult) error {
	r.fetching = false
	if res.reader != nil {
		r.reader = res.reader.(Reader[T])
	}
	if r.closed {
		return r.closeReader()
	}
	if errors.Is(res.err, io.EOF) {
		index := r.current.index
		invariant.Check(!r.finished.has(index), "I12", "split %d of %s has ended twice: a snapshot had it as finished while it was read", index, r.ctx.Operator)
		r.finished.set(index)
		r.mine.set(index)
		delete(r.splits, index)
		r.order = slices.DeleteFunc(r.order, func(i int64) bool { return i == index })
		r.current = nil
		r.tellSplit()
		return r.closeReader()
	}
	if res.err != nil {
		return res.err
	}
	if res.batch != nil {
		r.batch = res.batch.(Batch[T])
	}
	return nil
}

// HasBatch implements SourceRunner.
func (r *sourceRunner[T]) HasBatch() bool { return r.batch != nil }

// Process implements SourceRunner.
func (r *sourceRunner[T]) Process(pace *Pace) (records int, more bool, err error) {
	defer codec.Recover(&err)
	for {
		ok, err := r.batch.Next(&r.v)
		if err != nil {
			return records, false, fmt.Errorf("read split %d of %s: %w", r.current.index, r.ctx.Operator, err)
		}
		if !ok {
			r.current.position = r.batch.Position()
			r.batch = nil
			return records, false, nil
		}
		records++
		if err := r.out.Collect(r.v); err != nil {
			return records, true, err
		}
		if pace.ShouldYield() {
			return records, true, nil
		}
	}
}

// Ended implements SourceRunner.
func (r *sourceRunner[T]) Ended() bool {
	return r.complete && len(r.order) == 0 && len(r.restored) == 0 && !r.fetching
}

// Freeze implements Operator.
func (r *sourceRunner[T]) Freeze(element.Barrier) (Frozen, error) {
	f := &frozenSource{finished: r.mine.encode()}
	if r.current != nil && r.batch != nil {
		r.current.position = r.batch.Position()
	}
	for _, index := range r.order {
		if s := r.splits[index]; s.position != nil {
			f.indexes = append(f.indexes, index)
			f.positions = append(f.positions, s.position)
		}
	}
	// A restored position whose split has not been assigned yet must be in
	// this checkpoint too, or it would start over after the next failure (I12).
	unassigned := make([]int64, 0, len(r.restored))
	for index := range r.restored {
		unassigned = append(unassigned, index)
	}
	slices.Sort(unassigned)
	for _, index := range unassigned {
		f.indexes = append(f.indexes, index)
		f.positions = append(f.positions, r.restored[index])
	}
	return f, nil
}

// Finish implements Operator.
func (r *sourceRunner[T]) Finish() error { return nil }

// Close implements Operator. A reader inside a fetch is closed when the fetch
// comes back.
func (r *sourceRunner[T]) Close() error {
	r.closed = true
	r.batch = nil
	if r.fetching {
		return nil
	}
	return r.closeReader()
}

func (r *sourceRunner[T]) closeReader() error {
	if r.reader == nil {
		return nil
	}
	reader := r.reader
	r.reader = nil
	if err := reader.Close(); err != nil {
		return fmt.Errorf("close reader of %s: %w", r.ctx.Operator, err)
	}
	return nil
}

type frozenSource struct {
	indexes   []int64
	positions [][]byte
	finished  []byte
}

// Write implements Frozen.
func (f *frozenSource) Write(_ context.Context, w SnapshotWriter) error {
	if err := w.List(splitsList, snapshot.ByIndex, f.positions, f.indexes); err != nil {
		return err
	}
	return w.List(finishedList, snapshot.Union, [][]byte{f.finished}, nil)
}

// Release implements Frozen.
func (f *frozenSource) Release() {}

// bitmap is a set of split indexes: one bit for each, so that a million
// finished splits cost 125 kB in a snapshot.
type bitmap struct{ words []uint64 }

func (b *bitmap) set(i int64) {
	for int64(len(b.words)) <= i/64 {
		b.words = append(b.words, 0)
	}
	b.words[i/64] |= 1 << (i % 64)
}

func (b *bitmap) has(i int64) bool {
	return i/64 < int64(len(b.words)) && b.words[i/64]&(1<<(i%64)) != 0
}

func (b *bitmap) or(o bitmap) {
	for i, w := range o.words {
		if i == len(b.words) {
			b.words = append(b.words, 0)
		}
		b.words[i] |= w
	}
}

// all yields the members in ascending order.
func (b *bitmap) all() func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for i, w := range b.words {
			for bit := range 64 {
				if w&(1<<bit) != 0 && !yield(int64(i*64+bit)) {
					return
				}
			}
		}
	}
}

func (b *bitmap) encode() []byte {
	out := make([]byte, 0, 8*len(b.words))
	for _, w := range b.words {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out
}

func decodeBitmap(data []byte) (bitmap, error) {
	if len(data)%8 != 0 {
		return bitmap{}, fmt.Errorf("bitmap of %d bytes: want a multiple of 8", len(data))
	}
	var b bitmap
	for ; len(data) > 0; data = data[8:] {
		b.words = append(b.words, binary.LittleEndian.Uint64(data))
	}
	return b, nil
}
