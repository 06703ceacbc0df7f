package datagen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/weirstream/weir/pkg/connector/throttle"
	"github.com/weirstream/weir/pkg/operator"
)

// Unbounded as the number of records makes a source that never ends.
const Unbounded = math.MaxUint64

// Option changes how records are generated.
type Option func(*options)

type options struct {
	first  uint64
	rate   int
	splits int // 0: by the parallelism
}

// WithFirst starts with number n instead of 0.
func WithFirst(n uint64) Option { return func(o *options) { o.first = n } }

// WithRate generates n records per second over all subtasks; 0 is no limit.
func WithRate(n int) Option { return func(o *options) { o.rate = n } }

// WithSplits divides the numbers into n splits, which is the most subtasks
// that can share them. Without it there are enough to give all subtasks about
// as much to do.
func WithSplits(n int) Option { return func(o *options) { o.splits = n } }

// Sequence generates n numbers: 0, 1, 2, … or from WithFirst on.
func Sequence(n uint64, options ...Option) operator.Source[uint64] {
	return newSource("datagen.Sequence", n, options, func(l *lane) operator.Batch[uint64] { return sequence{l} })
}

// Generate generates n records. fn makes a record of its number, the same one
// each time; it is shared by all subtasks.
func Generate[T any](n uint64, fn func(i uint64) T, options ...Option) operator.Source[T] {
	if fn == nil {
		return &source[T]{name: "datagen.Generate", invalid: errors.New("datagen.Generate: the function is nil")}
	}
	return newSource("datagen.Generate", n, options, func(l *lane) operator.Batch[T] { return generated[T]{l, fn} })
}

type source[T any] struct {
	name    string
	n       uint64
	options options
	batch   func(l *lane) operator.Batch[T]
	invalid error
}

func newSource[T any](name string, n uint64, list []Option, batch func(l *lane) operator.Batch[T]) operator.Source[T] {
	s := &source[T]{name: name, n: n, batch: batch}
	for _, o := range list {
		o(&s.options)
	}
	switch {
	case s.options.splits < 0 || s.options.splits > splitsMax:
		s.invalid = fmt.Errorf("%s: %d splits: set 1 to %d, or leave it out", name, s.options.splits, splitsMax)
	case n != Unbounded && s.options.first > math.MaxUint64-n:
		s.invalid = fmt.Errorf("%s: %d records from number %d on pass the largest number: start lower", name, n, s.options.first)
	}
	return throttle.PerSecond[T](s, s.options.rate)
}

// Bounds of the number of splits.
const (
	// splitsLeast divides evenly among 2, 3, 4, 6, 8, 12, 16 and 24 subtasks.
	splitsLeast = 48
	// splitsPerSubtask keeps subtasks within a quarter of each other's load.
	splitsPerSubtask = 4
	// splitsMax bounds the split list, which is part of every checkpoint.
	splitsMax = 1 << 16
)

// Validate implements operator.Validator.
func (s *source[T]) Validate() error { return s.invalid }

// Describe implements operator.Source.
func (s *source[T]) Describe() operator.Description {
	o := map[string]string{"connector": s.name, "first": strconv.FormatUint(s.options.first, 10)}
	if s.n != Unbounded {
		o["records"] = strconv.FormatUint(s.n, 10)
	}
	if s.options.splits > 0 {
		o["splits"] = strconv.Itoa(s.options.splits)
	}
	return operator.Description{Bounded: s.n != Unbounded, Options: o}
}

// ListSplits implements operator.Source.
//
// A bounded source is cut into runs of numbers. An unbounded one cannot be,
// and a subtask reads its splits one after the other: it gets one split for
// each subtask, of every parallelism-th number. After a rescale to fewer
// subtasks some of them never come up.
func (s *source[T]) ListSplits(_ context.Context, sc operator.SourceContext) ([][]byte, bool, error) {
	count := s.options.splits
	if s.n == Unbounded {
		if count == 0 {
			count = sc.Parallelism
		}
		splits := make([][]byte, count)
		for i := range splits {
			splits[i] = split{first: s.options.first + uint64(i), step: uint64(count), count: math.MaxUint64 / uint64(count)}.encode()
		}
		return splits, true, nil
	}
	if count == 0 {
		count = min(max(splitsLeast, splitsPerSubtask*sc.Parallelism), splitsMax)
	}
	count = int(min(uint64(count), s.n))
	splits := make([][]byte, count)
	first := s.options.first
	for i := range splits {
		// The first n mod count splits have one number more.
		n := s.n / uint64(count)
		if uint64(i) < s.n%uint64(count) {
			n++
		}
		splits[i] = split{first: first, step: 1, count: n}.encode()
		first += n
	}
	return splits, true, nil
}

// OpenReader implements operator.Source.
func (s *source[T]) OpenReader(_ context.Context, sc operator.SourceContext, data, position []byte) (operator.Reader[T], error) {
	sp, err := decodeSplit(data)
	if err != nil {
		return nil, operator.Permanentf("source %s: %w", sc.Operator, err)
	}
	l := &lane{split: sp}
	if position != nil {
		if l.at, err = decodePosition(position, sp); err != nil {
			return nil, operator.Permanentf("source %s: %w", sc.Operator, err)
		}
	}
	l.stop = l.at
	return &reader[T]{lane: l, batch: s.batch(l)}, nil
}
