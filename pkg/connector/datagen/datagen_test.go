package datagen_test

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/operator"
)

func contextOf(parallelism int) operator.SourceContext {
	return operator.SourceContext{Context: &operator.Context{Operator: "numbers", Parallelism: parallelism}}
}

// read reads at most so many records of a split from a position.
func read[T any](src operator.Source[T], split, position []byte, most int) (got []T, at []byte, ended bool, err error) {
	r, err := src.OpenReader(context.Background(), contextOf(1), split, position)
	if err != nil {
		return nil, nil, false, err
	}
	at = position
	for {
		batch, err := r.Fetch(context.Background())
		if errors.Is(err, io.EOF) {
			return got, at, true, nil
		}
		if err != nil {
			return got, at, false, err
		}
		for ok := true; ok; {
			at = batch.Position()
			if len(got) == most {
				return got, at, false, nil
			}
			var v T
			if ok, err = batch.Next(&v); err != nil {
				return got, at, false, err
			}
			if ok {
				got = append(got, v)
			}
		}
		at = batch.Position()
	}
}

// Any number of records, splits and restarts: every number exactly once.
func TestEveryNumberOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 300).Draw(t, "n")
		first := rapid.OneOf(rapid.Just(uint64(0)), rapid.Just(uint64(math.MaxUint64-n))).Draw(t, "first")
		src := datagen.Sequence(n, datagen.WithFirst(first), datagen.WithSplits(rapid.IntRange(0, 20).Draw(t, "splits")))
		splits, complete, err := src.ListSplits(context.Background(), contextOf(rapid.IntRange(1, 30).Draw(t, "parallelism")))
		if err != nil || !complete {
			t.Fatal(complete, err)
		}
		var got []uint64
		for _, s := range splits {
			var at []byte
			for ended := false; !ended; {
				var part []uint64
				part, at, ended, err = read(src, s, at, rapid.IntRange(1, 50).Draw(t, "before a restart"))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, part...)
			}
		}
		if uint64(len(got)) != n {
			t.Fatalf("%d numbers, want %d", len(got), n)
		}
		for i, v := range got {
			if v != first+uint64(i) {
				t.Fatalf("number %d is %d", i, v)
			}
		}
	})
}

// There are enough splits to share, and no empty ones.
func TestSplits(t *testing.T) {
	for _, tt := range []struct {
		n           uint64
		parallelism int
		want        int
	}{{0, 4, 0}, {5, 4, 5}, {1000, 1, 48}, {1000, 20, 80}, {datagen.Unbounded, 3, 3}} {
		splits, _, err := datagen.Sequence(tt.n).ListSplits(t.Context(), contextOf(tt.parallelism))
		if err != nil || len(splits) != tt.want {
			t.Errorf("%d records for %d subtasks: %d splits, want %d, error %v", tt.n, tt.parallelism, len(splits), tt.want, err)
		}
	}
}

// The splits of an unbounded source share the numbers.
func TestUnbounded(t *testing.T) {
	src := datagen.Sequence(datagen.Unbounded, datagen.WithFirst(10))
	splits, _, err := src.ListSplits(t.Context(), contextOf(3))
	if err != nil {
		t.Fatal(err)
	}
	var all []uint64
	for _, s := range splits {
		got, _, _, err := read(src, s, nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	slices.Sort(all)
	if want := []uint64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	if src.Describe().Bounded {
		t.Error("an unbounded source describes itself as bounded")
	}
}

func TestGenerate(t *testing.T) {
	type record struct{ ID, Square uint64 }
	src := datagen.Generate(4, func(i uint64) record { return record{i, i * i} }, datagen.WithSplits(1))
	splits, _, err := src.ListSplits(t.Context(), contextOf(1))
	if err != nil {
		t.Fatal(err)
	}
	got, _, _, err := read(src, splits[0], nil, -1)
	if err != nil || !slices.Equal(got, []record{{0, 0}, {1, 1}, {2, 4}, {3, 9}}) {
		t.Errorf("got %v, error %v", got, err)
	}
}

func TestRefuses(t *testing.T) {
	for name, src := range map[string]operator.Source[uint64]{
		"nil function":   datagen.Generate[uint64](1, nil),
		"splits":         datagen.Sequence(1, datagen.WithSplits(-1)),
		"too many":       datagen.Sequence(1, datagen.WithSplits(1<<20)),
		"behind the end": datagen.Sequence(2, datagen.WithFirst(math.MaxUint64)),
		"rate":           datagen.Sequence(2, datagen.WithRate(-1)),
	} {
		if err := src.(operator.Validator).Validate(); err == nil {
			t.Errorf("%s: is valid", name)
		}
	}
	src := datagen.Sequence(10, datagen.WithSplits(1))
	splits, _, err := src.ListSplits(t.Context(), contextOf(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{{}, {1}, append([]byte{9}, splits[0][1:]...)} {
		if _, err := src.OpenReader(t.Context(), contextOf(1), bad, nil); !operator.IsPermanent(err) {
			t.Errorf("split %v: error %v", bad, err)
		}
	}
	for _, bad := range [][]byte{{}, {11, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := src.OpenReader(t.Context(), contextOf(1), splits[0], bad); !operator.IsPermanent(err) {
			t.Errorf("position %v: error %v", bad, err)
		}
	}
}
