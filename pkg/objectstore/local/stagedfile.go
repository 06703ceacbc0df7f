package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weirstream/weir/pkg/objectstore"
)

// stagedPrefix begins the names of temporary files: .tmp-<object>-<random>.
// The object's name is in it so that DiscardStaged can tell whose it was.
const stagedPrefix = ".tmp-"

// stageAttemptsMax bounds how often making a file is tried again because
// another process removed its directory, which was empty, in between.
const stageAttemptsMax = 20

// stagedFile is an object that is being written. The file is made at the
// first byte, so that a Put that is given up before costs nothing.
type stagedFile struct {
	store  *Store
	ctx    context.Context
	target string
	file   *os.File
	synced bool
}

func (s *Store) newStagedFile(ctx context.Context, target string) *stagedFile {
	return &stagedFile{store: s, ctx: ctx, target: target}
}

// Write adds to the temporary file.
func (f *stagedFile) Write(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.open(); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

func (f *stagedFile) open() error {
	if f.file != nil {
		return nil
	}
	dir, base := filepath.Split(f.target)
	var err error
	for range stageAttemptsMax {
		if err = makeDirectories(filepath.Clean(dir)); err != nil {
			return err
		}
		name := filepath.Join(dir, stagedPrefix+base+"-"+rand.Text())
		f.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			return nil
		}
		f.file = nil
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	}
	return err
}

// sync makes the content durable and closes the file.
func (f *stagedFile) sync() error {
	if f.synced {
		return nil
	}
	if err := f.open(); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	if err := f.file.Close(); err != nil {
		return err
	}
	f.synced = true
	return nil
}

// replace gives the file its name, in place of what has it.
func (f *stagedFile) replace() error {
	if err := f.sync(); err != nil {
		return err
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(f.file.Name(), f.target); err != nil {
		return err
	}
	f.file = nil
	return syncNamed(f.target)
}

// create gives the file its name if nothing has it.
func (f *stagedFile) create() error {
	if err := f.sync(); err != nil {
		return err
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	err := os.Link(f.file.Name(), f.target)
	if errors.Is(err, fs.ErrExist) {
		return objectstore.ErrPrecondition
	}
	if err != nil {
		return err
	}
	os.Remove(f.file.Name())
	f.file = nil
	return syncNamed(f.target)
}

// discard removes the temporary file, if there still is one, and directories
// that were made for nothing. An error leaves the file to DiscardStaged.
func (f *stagedFile) discard() {
	if f.file == nil {
		return
	}
	name := f.file.Name()
	if !f.synced {
		f.file.Close()
	}
	os.Remove(name)
	f.file = nil
	f.store.removeEmptyAbove(f.target)
}

// syncNamed makes a new name durable. When that fails the name is there, but
// may be gone after a power failure: the outcome is unknown.
func syncNamed(path string) error {
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%w: %w", objectstore.ErrUnknownOutcome, err)
	}
	return nil
}

func syncDirectory(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	err = file.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		// Some file systems have no fsync of directories and need none.
		return nil
	}
	return err
}

// makeDirectories makes a directory and what is missing above it, durably.
func makeDirectories(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is not a directory", dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDirectories(parent); err != nil {
		return err
	}
	err = os.Mkdir(dir, 0o777)
	switch {
	case err == nil:
		// Another process may have removed both again.
		if err := syncDirectory(parent); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		// Another process was faster, or removed the parent again. When a
		// directory is gone the caller's file cannot be made, and it tries again.
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	}
	return err
}

// stagedObject returns the name of the object that a temporary file is for.
func stagedObject(base string) (string, bool) {
	rest, ok := strings.CutPrefix(base, stagedPrefix)
	if !ok {
		return "", false
	}
	dash := strings.LastIndexByte(rest, '-')
	if dash < 1 {
		return "", false
	}
	return rest[:dash], true
}
