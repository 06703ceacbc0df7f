package operator

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
)

// recorder keeps what it was given, and yields or fails where it is told to.
type recorder struct {
	got     []uint64
	shown   []uint64
	pace    *Pace
	yieldAt uint64
	failAt  uint64
}

var errRecorder = errors.New("told to fail")

func (r *recorder) Collect(v uint64) error {
	if r.failAt != 0 && v == r.failAt {
		return errRecorder
	}
	r.got = append(r.got, v)
	if r.yieldAt != 0 && v == r.yieldAt {
		r.pace.SetBlocked(true)
	}
	return nil
}

// prefetching is a recorder that is also a Prefetcher.
type prefetching struct{ recorder }

func (p *prefetching) Prefetch(next []uint64) { p.shown = append(p.shown, next...) }

func numbers(t *testing.T, n uint64) (codec.Codec[uint64], []byte, []uint64) {
	t.Helper()
	c, err := codec.For[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	var all []uint64
	for i := uint64(1); i <= n; i++ {
		data = c.Append(data, &i)
		all = append(all, i)
	}
	return c, data, all
}

// TestInputResumesBehindTheRecordItYieldedAt: whatever the yield, every record
// is collected once and in order, also with a collector that is shown ahead.
func TestInputResumesBehindTheRecordItYieldedAt(t *testing.T) {
	c, data, all := numbers(t, 100)
	for yieldAt := uint64(1); yieldAt <= 100; yieldAt++ {
		pace := &Pace{}
		plain := &recorder{pace: pace, yieldAt: yieldAt}
		ahead := &prefetching{recorder{pace: pace, yieldAt: yieldAt}}
		for _, x := range []struct {
			r  *recorder
			in Input
		}{{plain, NewInput[uint64](c, plain)}, {&ahead.recorder, NewInput[uint64](c, ahead)}} {
			pace.SetBlocked(false)
			consumed, records, err := x.in.Process(data, pace)
			if err != nil || uint64(records) != yieldAt || !slices.Equal(x.r.got, all[:yieldAt]) {
				t.Fatalf("yield at %d: %d records, got %v, error %v", yieldAt, records, x.r.got, err)
			}
			pace.SetBlocked(false)
			rest, more, err := x.in.Process(data[consumed:], pace)
			if err != nil || consumed+rest != len(data) || records+more != 100 || !slices.Equal(x.r.got, all) {
				t.Fatalf("yield at %d: %d+%d records, got %v, error %v", yieldAt, records, more, x.r.got, err)
			}
		}
		if len(ahead.shown) < 100 {
			t.Fatalf("yield at %d: only %d records were shown ahead", yieldAt, len(ahead.shown))
		}
	}
}

// TestInputCollectsWhatComesBeforeAnError: records in front of one that fails,
// or of malformed bytes, are processed.
func TestInputCollectsWhatComesBeforeAnError(t *testing.T) {
	c, data, all := numbers(t, 40)
	ahead := &prefetching{recorder{failAt: 21}}
	if _, records, err := NewInput[uint64](c, ahead).Process(data, &Pace{}); !errors.Is(err, errRecorder) || records != 21 || !slices.Equal(ahead.got, all[:20]) {
		t.Fatalf("%d records, got %v, error %v", records, ahead.got, err)
	}
	ahead = &prefetching{}
	if _, records, err := NewInput[uint64](c, ahead).Process(data[:len(data)-1], &Pace{}); err == nil || records != 39 || !slices.Equal(ahead.got, all[:39]) {
		t.Fatalf("%d records, got %v, error %v", records, ahead.got, err)
	}
}
