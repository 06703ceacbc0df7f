package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// localDir has the files that were brought.
const localDir = "files"

// fileError is about one file of several.
type fileError struct {
	file snapshot.StateHandle
	err  error
}

// Error names the file.
func (e *fileError) Error() string { return nameOf(e.file) + ": " + e.err.Error() }

// Unwrap is the cause.
func (e *fileError) Unwrap() error { return e.err }

// eachEntryInFiles brings the files of a piece of keyed state to a temporary
// directory, compares each with its checksum, and reads them as their backend
// does. Disk and memory hold one piece, of one subtask, at a time.
func (s *Stored) eachEntryInFiles(ctx context.Context, p piece, entry func(g keygroup.Group, state int, key, value []byte) error) (err error) {
	k := p.keyed
	read := s.readers[k.Backend]
	if read == nil {
		return fmt.Errorf("the state is in files of state backend %q, whose entries this program cannot read: a savepoint of the job can be read by all", k.Backend)
	}
	dir, err := os.MkdirTemp("", "weir-inspect-")
	if err != nil {
		return fmt.Errorf("make a directory for the files of state: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Mkdir(filepath.Join(dir, localDir), 0o700); err != nil {
		return fmt.Errorf("make a directory for the files of state: %w", err)
	}
	part := statebackend.RestoredPart{Range: k.Range, States: k.States, Backend: k.Backend}
	for _, f := range k.Files {
		// The names are stored bytes too: none may lead out of the directory.
		if !filepath.IsLocal(f.Local) || filepath.Base(f.Local) != f.Local {
			return &fileError{f.Handle, fmt.Errorf("%w: its backend's name is %q", statebackend.ErrCorrupt, f.Local)}
		}
		path := filepath.Join(dir, localDir, f.Local)
		if err := s.store.FetchState(ctx, s.base, f.Handle, path); err != nil {
			return &fileError{f.Handle, err}
		}
		part.Files = append(part.Files, statebackend.File{Local: f.Local, Path: path, Size: f.Handle.Size, Shared: f.Handle.IsShared()})
	}
	canonical, err := read(ctx, filepath.Join(dir, "read"), part, k.Range)
	if err != nil {
		return err
	}
	return canonical.Groups(k.Range, func(g keygroup.Group, content []byte) error {
		return statebackend.ReadGroup(content, len(k.States), func(state int, key, value []byte) error {
			return entry(g, state, key, value)
		})
	})
}
