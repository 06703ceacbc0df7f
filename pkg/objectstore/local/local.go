package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Store is an object store in a directory.
type Store struct {
	root string
	uri  string
}

var _ objectstore.Store = (*Store)(nil)

// New returns the store in a directory, given by its absolute path, which is
// made when the first object is put. uri is how users name the directory: its
// path, or a file:// URI of it.
func New(dir, uri string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("directory %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if trimmed := strings.TrimRight(uri, "/"); trimmed != "" && !strings.HasSuffix(trimmed, ":") {
		uri = trimmed
	}
	return &Store{root: dir, uri: uri}, nil
}

// Put writes what write produces to a temporary file and renames it when it
// is whole and on disk.
func (s *Store) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := s.begin(ctx, name); err != nil {
		return s.wrap("put", name, err)
	}
	file := s.newStagedFile(ctx, s.path(name))
	defer file.discard()
	if err := write(file); err != nil {
		return s.wrap("put", name, err)
	}
	if err := file.replace(); err != nil {
		return s.wrap("put", name, err)
	}
	return nil
}

// PutIf links a new file, or swaps an existing one under a lock.
func (s *Store) PutIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	if err := s.begin(ctx, name); err != nil {
		return "", s.wrap("put-if", name, err)
	}
	if !cond.IsValid() {
		return "", s.wrap("put-if", name, objectstore.ErrInvalidCondition)
	}
	if err := s.putIf(ctx, name, content, cond); err != nil {
		return "", s.wrap("put-if", name, err)
	}
	return etagOf(content), nil
}

func (s *Store) putIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) error {
	file := s.newStagedFile(ctx, s.path(name))
	defer file.discard()
	if _, err := file.Write(content); err != nil {
		return err
	}
	if cond.IsAbsent() {
		return file.create()
	}
	// The lock is taken after the slow part, the fsync of the new content, so
	// that it is held for no longer than compare and rename.
	if err := file.sync(); err != nil {
		return err
	}
	lock, err := lockDirectory(ctx, filepath.Dir(s.path(name)))
	if err != nil {
		return err
	}
	defer lock.unlock()
	current, err := s.readFile(name, sizeToCompareMax)
	switch {
	case errors.Is(err, objectstore.ErrNotExist), errors.Is(err, objectstore.ErrTooLarge):
		return objectstore.ErrPrecondition
	case err != nil:
		return err
	case etagOf(current) != cond.ETag():
		return objectstore.ErrPrecondition
	}
	return file.replace()
}

// sizeToCompareMax bounds what a swap reads into memory. Objects that are
// swapped are small; one of this size was never written by a PutIf of ours.
const sizeToCompareMax = 1 << 30

// Read returns the whole file.
func (s *Store) Read(ctx context.Context, name string, sizeMax int64) ([]byte, objectstore.ETag, error) {
	if err := s.begin(ctx, name); err != nil {
		return nil, "", s.wrap("read", name, err)
	}
	content, err := s.readFile(name, sizeMax)
	if err != nil {
		return nil, "", s.wrap("read", name, err)
	}
	return content, etagOf(content), nil
}

func (s *Store) readFile(name string, sizeMax int64) ([]byte, error) {
	file, err := s.openFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, sizeMax+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > sizeMax {
		return nil, objectstore.ErrTooLarge
	}
	return content, nil
}

// Open opens the file.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.begin(ctx, name); err != nil {
		return nil, s.wrap("open", name, err)
	}
	file, err := s.openFile(name)
	if err != nil {
		return nil, s.wrap("open", name, err)
	}
	return &reader{ctx: ctx, file: file}, nil
}

// reader ends when its context does.
type reader struct {
	ctx  context.Context
	file *os.File
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}

func (r *reader) Close() error { return r.file.Close() }

func (s *Store) openFile(name string) (*os.File, error) {
	file, err := os.Open(s.path(name))
	if err != nil {
		return nil, classify(err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		return file, nil
	}
	file.Close()
	if err != nil {
		return nil, err
	}
	// A directory has no content: no object has this name.
	return nil, objectstore.ErrNotExist
}

// Delete removes the file, and its directories that are empty then.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.begin(ctx, name); err != nil {
		return s.wrap("delete", name, err)
	}
	path := s.path(name)
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.Remove(path); err != nil {
		if err = classify(err); !errors.Is(err, objectstore.ErrNotExist) {
			return s.wrap("delete", name, err)
		}
	}
	s.removeEmptyAbove(path)
	return nil
}

// removeEmptyAbove removes the directories above path, up to the root, as
// long as they are empty. It is tidying: that another process makes a file
// there first, or that it may not be removed, is no error.
func (s *Store) removeEmptyAbove(path string) {
	for dir := filepath.Dir(path); len(dir) > len(s.root); dir = filepath.Dir(dir) {
		// Not os.Remove: what is named like a directory of the object may be a
		// file.
		if syscall.Rmdir(dir) == nil {
			continue
		}
		if !removeLockFile(dir) || syscall.Rmdir(dir) != nil {
			return
		}
	}
}

// Check makes the directory if it is missing and writes a file into it.
func (s *Store) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return s.wrap("check", "", err)
	}
	file := s.newStagedFile(ctx, filepath.Join(s.root, "check"))
	defer file.discard()
	if _, err := file.Write([]byte("check")); err != nil {
		return s.wrap("check", "", fmt.Errorf("directory cannot be written: %w", err))
	}
	return nil
}

// URI is the path of the file, or its file:// URI, as the root was given.
func (s *Store) URI(name string) string {
	switch {
	case name == "":
		return s.uri
	case strings.HasSuffix(s.uri, "/"):
		return s.uri + name
	}
	return s.uri + "/" + name
}

func (s *Store) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

func (s *Store) begin(ctx context.Context, name string) error {
	if err := objectstore.ValidateName(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (s *Store) wrap(op, name string, err error) error {
	return &objectstore.Error{Op: op, URI: s.URI(name), Err: err}
}

// classify gives errors of the file system the classes of package objectstore.
func classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return objectstore.ErrNotExist
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	}
	return err
}

func etagOf(content []byte) objectstore.ETag {
	sum := sha256.Sum256(content)
	return objectstore.ETag(hex.EncodeToString(sum[:16]))
}
