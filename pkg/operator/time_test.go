package operator_test

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// plainOutbox keeps nothing: buffers are used again.
type plainOutbox struct {
	buffer []byte
	last   []byte
}

func (o *plainOutbox) Emit(_, _ int, f element.Frame)     { o.last = f.Data }
func (o *plainOutbox) NewBuffer() ([]byte, element.Owner) { return o.buffer[:0], nil }
func (o *plainOutbox) CutAt(_, _ int) int                 { return operator.CutBytes }
func (o *plainOutbox) take(w *operator.Writer) []byte     { w.Flush(); return o.last }
func newPlainOutbox() *plainOutbox                        { return &plainOutbox{buffer: make([]byte, 0, 2*operator.CutBytes)} }

// stamps sums up what it is given with the timestamps.
type stamps struct {
	time     *operator.Time
	sum, all int64
}

// Collect implements operator.Collector.
func (s *stamps) Collect(v uint64) error {
	s.sum += int64(v)
	s.all += s.time.Timestamp
	return nil
}

// TestStampedEdgeAllocatesNothing for a record, and takes each timestamp over.
func TestStampedEdgeAllocatesNothing(t *testing.T) {
	c, err := codec.For[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	from := &operator.Time{}
	to := &stamps{time: &operator.Time{}}
	box := newPlainOutbox()
	w := operator.NewWriter(box, 0, 1, 0, 1, 1)
	out := operator.NewForwardOutput(operator.Stamped(c, from), w)
	in := operator.NewStampedInput[uint64](c, to, to.time)
	var pace operator.Pace
	const records = 100
	allocs := testing.AllocsPerRun(10, func() {
		for v := range uint64(records) {
			from.Timestamp = int64(v) - 5
			if err := out.Collect(v); err != nil {
				t.Fatal(err)
			}
		}
		to.sum, to.all = 0, 0
		if _, n, err := in.Process(box.take(w), &pace); err != nil || n != records {
			t.Fatal(n, err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations for %d records", allocs, records)
	}
	if to.sum != 4950 || to.all != 4950-5*records {
		t.Errorf("records sum up to %d, timestamps to %d", to.sum, to.all)
	}
	if _, _, err := in.Process([]byte{1, 2, 3}, &pace); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("three bytes are no record with a timestamp, and gave the error %v", err)
	}
}

func groups(first, last uint16) keygroup.Range {
	return keygroup.Range{First: keygroup.Group(first), Last: keygroup.Group(last)}
}

// TestLowestTimeNeedsEveryKeyGroup: a time that is not known of a key group may be any.
func TestLowestTimeNeedsEveryKeyGroup(t *testing.T) {
	of := func(first, last uint16, at int64) operator.ListElement {
		return operator.ListElement{Bytes: operator.AppendTime(nil, groups(first, last), at)}
	}
	list := []operator.ListElement{of(0, 3, 10), of(4, 7, 5)}
	for _, c := range []struct {
		first, last uint16
		want        int64
	}{{0, 3, 10}, {4, 7, 5}, {2, 5, 5}, {0, 1, 10}, {6, 8, watermark.None}} {
		got, err := operator.LowestTime(list, groups(c.first, c.last))
		if err != nil || got != c.want {
			t.Errorf("key groups %d to %d: %d, %v, want %d", c.first, c.last, got, err, c.want)
		}
	}
	if _, err := operator.LowestTime([]operator.ListElement{{Bytes: []byte{1}}}, groups(0, 0)); !operator.IsPermanent(err) {
		t.Errorf("a broken element gave the error %v", err)
	}
}
