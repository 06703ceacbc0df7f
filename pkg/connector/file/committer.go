package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// committable is all that is needed to make a pending file visible: its name
// in the output directory, and what must be in it.
type committable struct {
	name string
	size int64
	crc  uint32 // CRC-32C
}

// committableVersion is the first byte of an encoded committable: they live
// in checkpoints, which a later version of the program must be able to read.
const committableVersion = 1

func (c committable) encode() operator.Committable {
	out := operator.Committable{committableVersion}
	out = binary.AppendUvarint(out, uint64(c.size))
	out = binary.LittleEndian.AppendUint32(out, c.crc)
	return append(out, c.name...)
}

func decodeCommittable(data operator.Committable) (committable, error) {
	if len(data) == 0 || data[0] != committableVersion {
		return committable{}, fmt.Errorf("committable of %d bytes is not of version %d", len(data), committableVersion)
	}
	size, n := binary.Uvarint(data[1:])
	if n <= 0 || int64(size) < 0 || len(data) < 1+n+4 {
		return committable{}, fmt.Errorf("committable of %d bytes is cut off", len(data))
	}
	rest := data[1+n:]
	c := committable{size: int64(size), crc: binary.LittleEndian.Uint32(rest), name: string(rest[4:])}
	if _, ok := parseCommitted(c.name); !ok {
		return committable{}, fmt.Errorf("committable names the file %q, which is no name of an output file", c.name)
	}
	return c, nil
}

// committer makes pending files visible, and removes the leftovers of earlier
// attempts.
type committer struct {
	dir      string
	job      ids.JobID
	operator ids.OperatorUID
	subtask  int
}

// Recover implements operator.Committer.
func (c *committer) Recover(ctx context.Context, r operator.Recovery) error {
	if c.subtask != 0 {
		return nil
	}
	if err := c.takeBack(ctx, r); err != nil {
		return fmt.Errorf("take back what was committed after checkpoint %d: %w", r.Restored, err)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return unwritable(c.dir, err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !e.Type().IsRegular() || !c.isLeftover(e.Name(), r) {
			continue
		}
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove leftover: %w", err)
		}
	}
	return nil
}

// isLeftover reports whether a file is one that an older attempt of this
// operator of this job left behind and that nothing needs.
func (c *committer) isLeftover(name string, r operator.Recovery) bool {
	if n, ok := parseInProgress(name); ok {
		return n.isOf(c.job, c.operator) && n.attempt.Less(r.Attempt)
	}
	n, ok := parsePending(name)
	return ok && c.isLater(n, r) && !mayBeInSavepoint(n, r)
}

// isLater reports whether a file is an older attempt's for a checkpoint after
// the restored one.
func (c *committer) isLater(n committedName, r operator.Recovery) bool {
	return n.isOf(c.job, c.operator) && n.attempt.Less(r.Attempt) && n.checkpoint > r.Restored
}

// mayBeInSavepoint reports whether a savepoint may hold the file.
func mayBeInSavepoint(n committedName, r operator.Recovery) bool {
	for _, s := range r.Savepoints {
		if n.checkpoint <= s {
			return true
		}
	}
	return false
}

// Commit implements operator.Committer.
func (c *committer) Commit(ctx context.Context, committables []operator.Committable) error {
	for _, data := range committables {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := decodeCommittable(data)
		if err != nil {
			return operator.Permanentf("commit in %s: %w", absolute(c.dir), err)
		}
		if err := c.publish(t); err != nil {
			return err
		}
	}
	if err := syncDir(c.dir); err != nil {
		return fmt.Errorf("commit output: %w", err)
	}
	return nil
}

// Abort implements operator.Committer. Only the pending name goes: whatever
// is visible stays (I1).
func (c *committer) Abort(ctx context.Context, committables []operator.Committable) error {
	for _, data := range committables {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := decodeCommittable(data)
		if err != nil {
			return fmt.Errorf("abort in %s: %w", absolute(c.dir), err)
		}
		if err := os.Remove(filepath.Join(c.dir, pendingName(t.name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("abort output: %w", err)
		}
	}
	if err := syncDir(c.dir); err != nil {
		return fmt.Errorf("abort output: %w", err)
	}
	return nil
}

// publish gives a pending file its visible name. Where that takes two steps a
// crash between them leaves both names, which the next commit tidies up.
func (c *committer) publish(t committable) error {
	pending, visible := filepath.Join(c.dir, pendingName(t.name)), filepath.Join(c.dir, t.name)
	info, err := os.Lstat(pending)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.checkCommitted(t)
	case err != nil: // an error is not an absence (I9)
		return fmt.Errorf("commit output: %w", err)
	case !info.Mode().IsRegular() || info.Size() != t.size:
		return operator.Permanentf("commit output: %s has %d bytes, but the checkpoint prepared %d: it was changed by somebody else",
			absolute(pending), info.Size(), t.size)
	}
	err = moveNoReplace(pending, visible)
	if err == nil {
		return nil // what has the pending name from here on was taken back
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		// Somebody was faster, such as a process of an older attempt that does
		// not know yet that it was replaced.
		err = c.checkCommitted(t)
	}
	if err != nil {
		return fmt.Errorf("commit output: %w", err)
	}
	if err := os.Remove(pending); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("commit output: %w", err)
	}
	return nil
}

// checkCommitted tells whether the visible file is the committed one. It reads
// the file: this is asked only after a failure.
func (c *committer) checkCommitted(t committable) error {
	path := filepath.Join(c.dir, t.name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return operator.Permanentf("output %s is lost: it was prepared with %d bytes, but neither it nor %s is there; was the output directory changed or emptied?",
			absolute(path), t.size, pendingName(t.name))
	}
	if err != nil {
		return fmt.Errorf("check committed output: %w", err)
	}
	defer f.Close() // only read
	h := crc32.New(castagnoli)
	size, err := io.Copy(h, f)
	if err != nil {
		return fmt.Errorf("check committed output: %w", err)
	}
	if size != t.size || h.Sum32() != t.crc {
		return operator.Permanentf("output %s is not what was prepared (%d bytes with checksum %08x, want %d with %08x): it was changed by somebody else, and is not replaced",
			absolute(path), size, h.Sum32(), t.size, t.crc)
	}
	return nil
}

// Close implements operator.Committer.
func (c *committer) Close() error { return nil }
