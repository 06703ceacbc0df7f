package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirstream/weir/pkg/objectstore"
)

const (
	// deletionsAtOnce bounds the files that a Store deletes at once. S3 takes
	// some 20 ms for one, so these are 800 a second: more than a job writes for
	// long. More would only take connections from those who read and write state.
	deletionsAtOnce = 16
	// deletionBatch bounds the names from a listing that are held in memory:
	// one page of S3.
	deletionBatch = 1000
	// deletionErrorsMax bounds the errors that are told of one deletion of many
	// files: mostly they all say the same.
	deletionErrorsMax = 4
)

// partialError is the error of a deletion that got on before it failed.
type partialError struct{ error }

func (e partialError) Unwrap() error { return e.error }

// GotOn reports whether the deletion that failed with err had deleted files
// before: repeated often enough, it comes to an end.
func GotOn(err error) bool { return errors.As(err, new(partialError)) }

// gotOn marks the error of a deletion that deleted that many files.
func gotOn(deleted int, err error) error {
	if err == nil || deleted == 0 {
		return err
	}
	return partialError{err}
}

// deleteAll deletes objects, several at a time. It goes on after an error, so
// that one bad file keeps no other, until ctx ends. left has the places in names of
// those that may still be there, and is empty if there is no error.
func (s *Store) deleteAll(ctx context.Context, store objectstore.Store, names []string) (left []int, err error) {
	failures := make([]error, len(names))
	begun := s.each(ctx, len(names), func(i int) { failures[i] = store.Delete(ctx, names[i]) })
	var errs []error
	for i, failure := range failures {
		if failure == nil && i < begun {
			continue
		}
		left = append(left, i)
		if failure != nil && len(errs) < deletionErrorsMax {
			errs = append(errs, failure)
		}
	}
	switch {
	case len(left) == 0:
		return nil, nil
	case len(errs) == 0:
		errs = append(errs, ctx.Err())
	}
	return left, fmt.Errorf("%d of %d files may be left: %w", len(left), len(names), errors.Join(errs...))
}

// each calls do(0) to do(n-1), several at a time, until ctx ends, and returns
// how many it called when all of those have returned.
func (s *Store) each(ctx context.Context, n int, do func(i int)) int {
	var workers sync.WaitGroup
	defer workers.Wait()
	for i := range n {
		if ctx.Err() != nil {
			return i
		}
		if s.deletions == nil {
			do(i)
			continue
		}
		select {
		case s.deletions <- struct{}{}:
		case <-ctx.Done():
			return i
		}
		workers.Go(func() {
			defer func() { <-s.deletions }()
			do(i)
		})
	}
	return n
}

// deleteListed deletes the objects below prefix that choose wants deleted, but
// no more than limit; more says that there are others. What was chosen before a
// listing or choose failed is deleted too, see also deleteAll.
func (s *Store) deleteListed(
	ctx context.Context, store objectstore.Store, prefix string, limit int, choose func(name string) (bool, error),
) (deleted int, more bool, err error) {
	var batch []string
	var errs []error
	flush := func() {
		left, err := s.deleteAll(ctx, store, batch)
		deleted += len(batch) - len(left)
		if err != nil && len(errs) < deletionErrorsMax {
			errs = append(errs, err)
		}
		batch = batch[:0]
	}
	for object, err := range store.List(ctx, prefix) {
		chosen := false
		if err == nil {
			chosen, err = choose(object.Name)
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		if !chosen {
			continue
		}
		if limit == 0 {
			more = true
			break
		}
		limit--
		if batch = append(batch, object.Name); len(batch) == deletionBatch {
			flush()
		}
	}
	flush()
	return deleted, more, errors.Join(errs...)
}
