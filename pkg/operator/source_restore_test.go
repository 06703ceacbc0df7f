package operator

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// letters is a source whose splits are words; their records are the letters.
type letters struct{}

func (letters) ListSplits(context.Context, SourceContext) ([][]byte, bool, error) {
	return nil, true, nil
}

func (letters) OpenReader(_ context.Context, _ SourceContext, split, position []byte) (Reader[string], error) {
	r := &lettersReader{word: string(split)}
	if position != nil {
		r.at = int(position[0])
	}
	return r, nil
}

func (letters) Describe() Description { return Description{} }

type lettersReader struct {
	word string
	at   int
}

func (r *lettersReader) Fetch(context.Context) (Batch[string], error) {
	if r.at == len(r.word) {
		return nil, io.EOF
	}
	return r, nil
}

func (r *lettersReader) Next(v *string) (bool, error) {
	if r.at == len(r.word) {
		return false, nil
	}
	*v = r.word[r.at : r.at+1]
	r.at++
	return true, nil
}

func (r *lettersReader) Position() []byte { return []byte{byte(r.at)} }
func (r *lettersReader) Close() error     { return nil }

// lists keeps what a snapshot holds.
type lists map[string][]ListElement

func (l lists) Keyed(statebackend.Frozen) error { return nil }

func (l lists) List(name string, _ snapshot.Redistribution, elements [][]byte, indexes []int64, _ ...snapshot.StateMeta) error {
	for i, bytes := range elements {
		e := ListElement{Bytes: bytes}
		if indexes != nil {
			e.Index = indexes[i]
		}
		l[name] = append(l[name], e)
	}
	return nil
}

type collected struct{ records []string }

func (c *collected) Collect(v string) error {
	c.records = append(c.records, v)
	return nil
}

// reading is the source of one subtask of an attempt.
type reading struct {
	t      *testing.T
	source SourceRunner
	op     Operator
	out    *collected
}

func startReading(t *testing.T, from lists) *reading {
	t.Helper()
	out := &collected{}
	instance := NewSource(letters{}, Collector[string](out))
	if err := instance.Operator.Open(&Context{Operator: "letters", Parallelism: 1}); err != nil {
		t.Fatal(err)
	}
	if err := instance.Operator.Restore(t.Context(), &Restored{Lists: from}); err != nil {
		t.Fatal(err)
	}
	return &reading{t: t, source: instance.Source, op: instance.Operator, out: out}
}

func (r *reading) assign(words ...string) {
	var indexes []int64
	var splits []snapshot.Split
	for i, word := range words {
		indexes = append(indexes, int64(i))
		splits = append(splits, snapshot.Split{Data: []byte(word)})
	}
	r.source.Assign(indexes, splits, true)
}

// read reads until there is nothing left, or that many records.
func (r *reading) read(most int) {
	r.t.Helper()
	var pace Pace
	pace.MailWaits() // a record at a time
	for len(r.out.records) < most {
		if !r.source.HasBatch() {
			fetch, ok := r.source.NextFetch()
			if !ok {
				return
			}
			if err := r.source.Fetched(fetch(r.t.Context())); err != nil {
				r.t.Fatal(err)
			}
			continue
		}
		if _, _, err := r.source.Process(&pace); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *reading) snapshot() lists {
	r.t.Helper()
	frozen, err := r.op.Freeze(element.Barrier{})
	if err != nil {
		r.t.Fatal(err)
	}
	l := lists{}
	if err := frozen.Write(r.t.Context(), l); err != nil {
		r.t.Fatal(err)
	}
	return l
}

// TestI12CheckpointBeforeTheSplitsAreBackKeepsTheirPositions: a checkpoint that
// is taken after a restore and before the splits are assigned again, at every
// position of the one before.
func TestI12CheckpointBeforeTheSplitsAreBackKeepsTheirPositions(t *testing.T) {
	words := []string{"abc", "", "defg"}
	for before := range 8 {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			first := startReading(t, nil)
			first.assign(words...)
			first.read(before)
			second := startReading(t, first.snapshot())
			if second.source.Ended() {
				t.Fatal("a source without its splits says that it has read all of them")
			}
			third := startReading(t, second.snapshot())
			third.assign(words...)
			third.read(100)
			if !third.source.Ended() {
				t.Error("the source has not ended")
			}
			if got := slices.Concat(first.out.records, third.out.records); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f", "g"}) {
				t.Errorf("read %v and then %v", first.out.records, third.out.records)
			}
		})
	}
}
