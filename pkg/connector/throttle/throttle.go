package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weirstream/weir/pkg/operator"
)

const (
	// burst is how much of the rate's time one batch may cover: short enough
	// to look steady, long enough that waiting for it costs little.
	burst = 10 * time.Millisecond
	// debtMax is how far records may be behind their time and still be caught
	// up on. Without a bound, a long stop would be followed by a flood.
	debtMax = time.Second
)

// PerSecond reads src at n records per second over all subtasks of the
// source. 0 means no limit, and gives src itself.
func PerSecond[T any](src operator.Source[T], n int) operator.Source[T] {
	if n == 0 {
		return src
	}
	return &source[T]{Source: src, rate: n}
}

type source[T any] struct {
	operator.Source[T]
	rate int
}

// Validate implements operator.Validator.
func (s *source[T]) Validate() error {
	if s.rate < 0 {
		return fmt.Errorf("rate is %d records per second: set 1 or more, or 0 for no limit", s.rate)
	}
	if v, ok := s.Source.(operator.Validator); ok {
		return v.Validate()
	}
	return nil
}

// Describe implements operator.Source.
func (s *source[T]) Describe() operator.Description {
	d := s.Source.Describe()
	options := map[string]string{"rate": strconv.Itoa(s.rate)}
	for k, v := range d.Options {
		options[k] = v
	}
	d.Options = options
	return d
}

// OpenReader implements operator.Source.
func (s *source[T]) OpenReader(ctx context.Context, sc operator.SourceContext, split, position []byte) (operator.Reader[T], error) {
	r, err := s.Source.OpenReader(ctx, sc, split, position)
	if err != nil {
		return nil, err
	}
	return newReader(r, float64(s.rate)/float64(sc.Parallelism)), nil
}

// reader lets a run of records pass when the first of them is due. It is each
// of its own batches: Fetch and Next are never called at the same time.
type reader[T any] struct {
	inner     operator.Reader[T]
	perSecond float64
	most      int // records in a burst

	batch operator.Batch[T] // of inner; nil before the first
	ended bool              // batch has been read to its end
	// due is when the first record of the present burst might pass; zero
	// before the first. passed is how many have since.
	due    time.Time
	passed int
}

func newReader[T any](inner operator.Reader[T], perSecond float64) *reader[T] {
	return &reader[T]{inner: inner, perSecond: perSecond, most: max(1, int(perSecond*burst.Seconds())), ended: true}
}

// Fetch implements operator.Reader. The end of a split waits for its turn too:
// otherwise a source of many small splits would pass without any wait.
func (r *reader[T]) Fetch(ctx context.Context) (operator.Batch[T], error) {
	var end error
	if r.ended {
		batch, err := r.inner.Fetch(ctx)
		switch {
		case errors.Is(err, io.EOF):
			end = err
		case err != nil:
			return nil, err
		default:
			r.batch, r.ended = batch, false
		}
	}
	if err := wait(ctx, r.untilDue(time.Now())); err != nil {
		return nil, err
	}
	if end != nil {
		return nil, end
	}
	return r, nil
}

// untilDue begins a new burst, and says how long it has to wait.
func (r *reader[T]) untilDue(now time.Time) time.Duration {
	if r.due.IsZero() {
		r.due = now
	}
	r.due = r.due.Add(time.Duration(float64(r.passed) / r.perSecond * float64(time.Second)))
	r.passed = 0
	if oldest := now.Add(-debtMax); r.due.Before(oldest) {
		r.due = oldest
	}
	return r.due.Sub(now)
}

// wait returns after d, or with ctx's error when it ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next implements operator.Batch.
func (r *reader[T]) Next(v *T) (bool, error) {
	if r.passed == r.most {
		return false, nil
	}
	ok, err := r.batch.Next(v)
	if err != nil {
		return false, err
	}
	if !ok {
		r.ended = true
		return false, nil
	}
	r.passed++
	return true, nil
}

// Position implements operator.Batch: what has not passed has not been read
// from the batch either.
func (r *reader[T]) Position() []byte { return r.batch.Position() }

// Close implements operator.Reader.
func (r *reader[T]) Close() error { return r.inner.Close() }
