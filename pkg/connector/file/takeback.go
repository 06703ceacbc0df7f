package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/operator"
)

// takeBack makes invisible what earlier attempts of this operator of this job,
// in whatever subtask, made visible for checkpoints after the restored one:
// the job has fallen back from them. A file that a savepoint may hold gets its
// pending name again, for a job that starts from there; any other is removed.
//
// The directory is looked through until nothing is left to take back: a
// process of an older attempt that does not know yet that it was replaced may
// be committing, and make a name visible that was pending when the directory
// was read. It commits nothing that is not pending, so this ends.
func (c *committer) takeBack(ctx context.Context, r operator.Recovery) error {
	for took := false; ; took = true {
		names, err := c.tooMuch(r)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			if !took {
				return nil // the usual case: nothing to make durable
			}
			return syncDir(c.dir)
		}
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.revoke(n, r); err != nil {
				return err
			}
		}
	}
}

// tooMuch lists the visible files to take back, and with them those that are
// pending and could become visible.
func (c *committer) tooMuch(r operator.Recovery) ([]committedName, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, unwritable(c.dir, err)
	}
	var visible, pending []committedName
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if n, ok := parseCommitted(e.Name()); ok && c.isLater(n, r) {
			visible = append(visible, n)
		} else if n, ok := parsePending(e.Name()); ok && c.isLater(n, r) && !mayBeInSavepoint(n, r) {
			pending = append(pending, n)
		}
	}
	if len(visible) == 0 && len(pending) == 0 {
		return nil, nil
	}
	return append(pending, visible...), nil
}

// revoke takes one file back. A crash between two steps leaves both names or
// one of them, which the next attempt finds.
func (c *committer) revoke(n committedName, r operator.Recovery) error {
	name := n.String()
	visible, pending := filepath.Join(c.dir, name), filepath.Join(c.dir, pendingName(name))
	remove := []string{pending, visible} // in this order, so that nobody makes it visible again
	if mayBeInSavepoint(n, r) {
		err := moveNoReplace(visible, pending)
		if !errors.Is(err, fs.ErrExist) {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		// Both names are there: a commit was interrupted between them.
		remove = []string{visible}
	}
	for _, path := range remove {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
