package faulty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Op is an operation of a store.
type Op uint8

// The operations.
const (
	Put Op = iota + 1
	PutIf
	Read
	Open
	List
	Delete
	DiscardStaged
	Check
)

// String names the operation as errors do.
func (o Op) String() string {
	switch o {
	case Put:
		return "put"
	case PutIf:
		return "put-if"
	case Read:
		return "read"
	case Open:
		return "open"
	case List:
		return "list"
	case Delete:
		return "delete"
	case DiscardStaged:
		return "discard-staged"
	case Check:
		return "check"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// isWrite reports whether the outcome of the operation can be unknown.
func (o Op) isWrite() bool { return o == Put || o == PutIf || o == Delete }

// Call is one call of a store; Name is a prefix for List and DiscardStaged.
type Call struct {
	Op   Op
	Name string
}

// Fault is what happens to one call. The zero Fault lets it pass.
type Fault struct {
	// Delay is given to the store's slow function before anything else.
	Delay time.Duration
	// Before, if not nil, is returned and the call never reaches the store.
	Before error
	// After, if not nil, is returned though the call was carried out. For
	// writes the error says ErrUnknownOutcome, whatever After is.
	After error
}

// ErrInjected is an error for faults whose kind does not matter. It counts as
// ErrUnavailable.
var ErrInjected = fmt.Errorf("injected fault: %w", objectstore.ErrUnavailable)

// Counts are how many faults of each kind a Store has made.
type Counts struct {
	Calls, Delays, Before, After int
}

// Store passes calls on to another store, with faults.
type Store struct {
	inner  objectstore.Store
	decide func(Call) Fault
	slow   func(context.Context, Call, time.Duration) error

	mu struct {
		sync.Mutex
		counts Counts
	}
}

var _ objectstore.Store = (*Store)(nil)

// New wraps inner. decide is called once for each call, before it; it must be
// safe for concurrent use if the Store is used so. slow waits out a Fault's
// Delay in whatever time the caller lives in; it may be nil if decide never
// sets one, and its error (of an ended context) ends the call.
func New(inner objectstore.Store, decide func(Call) Fault, slow func(context.Context, Call, time.Duration) error) *Store {
	return &Store{inner: inner, decide: decide, slow: slow}
}

// Counts returns how many faults were made so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.counts
}

// do carries out a call with the fault that is decided for it.
func (s *Store) do(ctx context.Context, op Op, name string, call func() error) error {
	after, err := s.doBefore(ctx, op, name, call)
	if err != nil || after == nil {
		return err
	}
	s.count(func(c *Counts) { c.After++ })
	if op.isWrite() && !errors.Is(after, objectstore.ErrUnknownOutcome) {
		after = fmt.Errorf("%w: %w", objectstore.ErrUnknownOutcome, after)
	}
	return s.wrap(op, name, after)
}

// doBefore carries out a call with all of its fault but After, which it returns.
func (s *Store) doBefore(ctx context.Context, op Op, name string, call func() error) (after, err error) {
	fault := s.decide(Call{Op: op, Name: name})
	s.count(func(c *Counts) { c.Calls++ })
	if fault.Delay > 0 && s.slow != nil {
		s.count(func(c *Counts) { c.Delays++ })
		if err := s.slow(ctx, Call{Op: op, Name: name}, fault.Delay); err != nil {
			return nil, s.wrap(op, name, err)
		}
	}
	if fault.Before != nil {
		s.count(func(c *Counts) { c.Before++ })
		return nil, s.wrap(op, name, fault.Before)
	}
	return fault.After, call()
}

func (s *Store) count(add func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.mu.counts)
}

func (s *Store) wrap(op Op, name string, err error) error {
	return &objectstore.Error{Op: op.String(), URI: s.inner.URI(name), Err: err}
}

// Put passes the call on, with faults.
func (s *Store) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return s.do(ctx, Put, name, func() error { return s.inner.Put(ctx, name, write) })
}

// PutIf passes the call on, with faults.
func (s *Store) PutIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	var etag objectstore.ETag
	err := s.do(ctx, PutIf, name, func() (err error) {
		etag, err = s.inner.PutIf(ctx, name, content, cond)
		return err
	})
	if err != nil {
		return "", err
	}
	return etag, nil
}

// Read passes the call on, with faults.
func (s *Store) Read(ctx context.Context, name string, sizeMax int64) ([]byte, objectstore.ETag, error) {
	var content []byte
	var etag objectstore.ETag
	err := s.do(ctx, Read, name, func() (err error) {
		content, etag, err = s.inner.Read(ctx, name, sizeMax)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return content, etag, nil
}

// Open passes the call on, with faults. A fault After makes the reader's end
// fail instead of the call: the connection broke on the way.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	var reader io.ReadCloser
	broken, err := s.doBefore(ctx, Open, name, func() (err error) {
		reader, err = s.inner.Open(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	if broken == nil {
		return reader, nil
	}
	s.count(func(c *Counts) { c.After++ })
	return &brokenReader{ReadCloser: reader, err: s.wrap(Open, name, broken)}, nil
}

// brokenReader gives its error in place of io.EOF.
type brokenReader struct {
	io.ReadCloser
	err error
}

func (r *brokenReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

// List passes the call on, with faults; a fault After comes at the end of the
// listing.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		stopped := false
		err := s.do(ctx, List, prefix, func() error {
			for object, err := range s.inner.List(ctx, prefix) {
				if err != nil {
					return err
				}
				if !yield(object, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(objectstore.Object{}, err)
		}
	}
}

// Delete passes the call on, with faults.
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.do(ctx, Delete, name, func() error { return s.inner.Delete(ctx, name) })
}

// DiscardStaged passes the call on, with faults.
func (s *Store) DiscardStaged(ctx context.Context, prefix string, dead func(name string) bool) (int, error) {
	var removed int
	err := s.do(ctx, DiscardStaged, prefix, func() (err error) {
		removed, err = s.inner.DiscardStaged(ctx, prefix, dead)
		return err
	})
	return removed, err
}

// Check passes the call on, with faults.
func (s *Store) Check(ctx context.Context) error {
	return s.do(ctx, Check, "", func() error { return s.inner.Check(ctx) })
}

// URI is the inner store's.
func (s *Store) URI(name string) string { return s.inner.URI(name) }
