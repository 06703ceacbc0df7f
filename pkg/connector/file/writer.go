package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// writeBytes is how much is collected before it is written: large enough to
// make a system call cheap, small enough to stay in a core's cache.
const writeBytes = 64 << 10

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer writes the file of the current transaction, which it makes with the
// transaction's first record.
type writer[T any] struct {
	dir, extension string
	name           writerName
	encode         func(dst []byte, v *T) ([]byte, error)

	current *transaction
	buf     []byte // not yet written to current
	v       T      // the record, where encode can point to it
	files   uint64 // how many have been made
	// unsettled are the transactions whose Persist has not succeeded: as many
	// as checkpoints since then, normally one.
	unsettled []*transaction
}

// Write implements operator.TwoPhaseWriter.
func (w *writer[T]) Write(v T) error {
	if w.current == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	w.v = v
	start := len(w.buf)
	buf, err := w.encode(w.buf, &w.v)
	if err != nil {
		return fmt.Errorf("encode record for %s: %w", inDir(w.dir, w.current.name), err)
	}
	if bytes.IndexByte(buf[start:], '\n') >= 0 {
		return operator.Permanentf("encode record for %s: %.80q has an end of line in it, which would make it several", inDir(w.dir, w.current.name), buf[start:])
	}
	w.buf = append(buf, '\n')
	if len(w.buf) < writeBytes {
		return nil
	}
	if err := w.current.write(w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	return nil
}

// begin makes the file of a new transaction.
func (w *writer[T]) begin() error {
	name := inProgressName{writerName: w.name, number: w.files}.String()
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return unwritable(w.dir, err)
	}
	w.files++
	w.current = &transaction{dir: w.dir, name: name, file: f}
	return nil
}

// Prepare implements operator.TwoPhaseWriter. The last bytes are left to
// Persist: writing can wait for the disk.
func (w *writer[T]) Prepare(id ids.CheckpointID) (operator.Prepared, error) {
	w.unsettled = unsettled(w.unsettled)
	t := w.current
	if t == nil {
		return nil, nil
	}
	t.committed = committedName{writerName: w.name, checkpoint: id, extension: w.extension}.String()
	t.rest = w.buf
	w.buf = make([]byte, 0, cap(w.buf))
	w.current = nil
	w.unsettled = append(w.unsettled, t)
	return t, nil
}

// Close implements operator.TwoPhaseWriter. What has not been persisted is in
// no checkpoint, and is removed.
func (w *writer[T]) Close() error {
	var all []error
	if w.current != nil {
		all = append(all, w.current.abandon())
		w.current = nil
	}
	for _, t := range w.unsettled {
		all = append(all, t.abandon())
	}
	w.unsettled = nil
	return errors.Join(all...)
}

// unsettled drops the transactions that have been persisted.
func unsettled(all []*transaction) []*transaction {
	kept := all[:0]
	for _, t := range all {
		if !t.isSettled() {
			kept = append(kept, t)
		}
	}
	clear(all[len(kept):])
	return kept
}

// transaction is one file on its way from in progress to pending. The writer
// owns it until Prepare, then Persist does; only abandon may meet a Persist.
type transaction struct {
	dir       string
	name      string // in progress
	committed string
	size      int64
	crc       uint32
	rest      []byte

	mu struct {
		sync.Mutex
		settled bool  // persisted or abandoned
		failed  error // of a Persist that must not be tried again
	}
	file *os.File // nil when closed
}

// write appends to the file. It knows how much is in the file, so that a
// write that failed halfway can be repeated.
func (t *transaction) write(p []byte) error {
	if _, err := t.file.WriteAt(p, t.size); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	t.size += int64(len(p))
	t.crc = crc32.Update(t.crc, castagnoli, p)
	return nil
}

// Persist implements operator.Prepared.
func (t *transaction) Persist(context.Context) ([]operator.Committable, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.failed != nil {
		return nil, t.mu.failed
	}
	if t.mu.settled {
		return nil, fmt.Errorf("persist %s: its writer is closed", inDir(t.dir, t.name))
	}
	if len(t.rest) > 0 {
		if err := t.write(t.rest); err != nil {
			return nil, err
		}
		t.rest = nil
	}
	if err := t.finishFile(); err != nil {
		// After a failed fsync the kernel may take the pages for clean: a
		// second one would succeed without the data being on disk.
		t.mu.failed = fmt.Errorf("persist output: %w", err)
		return nil, t.mu.failed
	}
	pending := filepath.Join(t.dir, pendingName(t.committed))
	if err := os.Rename(filepath.Join(t.dir, t.name), pending); err != nil && !isRenamed(err, pending) {
		return nil, fmt.Errorf("persist output: %w", err)
	}
	if err := syncDir(t.dir); err != nil {
		return nil, fmt.Errorf("persist output: %w", err)
	}
	t.mu.settled = true
	return []operator.Committable{committable{name: t.committed, size: t.size, crc: t.crc}.encode()}, nil
}

// finishFile makes the file's content durable and closes it.
func (t *transaction) finishFile() error {
	if t.file == nil {
		return nil
	}
	f := t.file
	t.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// isRenamed reports whether a rename failed only because an earlier Persist
// had done it, and failed afterwards.
func isRenamed(err error, to string) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, statErr := os.Lstat(to)
	return statErr == nil
}

func (t *transaction) isSettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.settled
}

// abandon removes the file unless it has been persisted.
func (t *transaction) abandon() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.settled {
		return nil
	}
	t.mu.settled = true
	var closeErr error
	if t.file != nil {
		closeErr = t.file.Close()
		t.file = nil
	}
	err := os.Remove(filepath.Join(t.dir, t.name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a later attempt cleaned up, or Persist got as far as the rename
		if t.committed != "" {
			err = os.Remove(filepath.Join(t.dir, pendingName(t.committed)))
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(closeErr, err)
}
