package checkpointstore

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Errors that callers branch on. Both are permanent: reading again gives the
// same. A file that is missing is objectstore.ErrNotExist, and any other
// failure to read means that nothing is known (I9).
var (
	// ErrCorrupt says that stored bytes are not what was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnsupported says that stored bytes are of a version, or need a
	// feature, that this program does not know.
	ErrUnsupported = errors.New("not supported by this version of weir")
)

// Opener gives the object store whose root is a path or URI. It does no I/O
// and is called for every operation, so it shares what is expensive.
type Opener func(uri string) (objectstore.Store, error)

// Store writes, reads and deletes checkpoints and savepoints. It may be used by
// many goroutines at once.
type Store struct {
	opener Opener
	// deletions has a token for each file that is being deleted; nil to delete
	// one after the other.
	deletions chan struct{}
}

// New returns a Store whose objects are reached through opener.
func New(opener Opener) *Store {
	return &Store{opener: opener, deletions: make(chan struct{}, deletionsAtOnce)}
}

// OneAtATime returns a Store of the same objects that deletes files one after
// the other, on the caller's goroutine: in a simulation calls have one order.
func (s *Store) OneAtATime() *Store { return &Store{opener: s.opener} }

func (s *Store) open(uri string) (objectstore.Store, error) {
	store, err := s.opener(uri)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", uri, err)
	}
	return store, nil
}

// openToDelete opens a base from the directory above it. A store on disk
// removes directories that have become empty, but never its own root: that
// way a savepoint's or a job's directory goes with its last file.
func (s *Store) openToDelete(base string) (objectstore.Store, error) {
	parent, last, ok := splitURI(base)
	if !ok || objectstore.ValidateName(last) != nil {
		return s.open(base)
	}
	store, err := s.open(parent)
	if err != nil {
		return nil, err
	}
	return objectstore.Sub(store, last), nil
}
