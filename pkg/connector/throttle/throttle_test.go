package throttle_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/throttle"
	"github.com/weirstream/weir/pkg/operator"
)

func contextOf(parallelism int) operator.SourceContext {
	return operator.SourceContext{Context: &operator.Context{Operator: "numbers", Parallelism: parallelism}}
}

// openFirst opens a reader on the first of n splits of a sequence.
func openFirst(t *testing.T, src operator.Source[uint64], parallelism int, position []byte) operator.Reader[uint64] {
	t.Helper()
	splits, _, err := src.ListSplits(t.Context(), contextOf(parallelism))
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.OpenReader(t.Context(), contextOf(parallelism), splits[0], position)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A subtask gets its share of the rate, in bursts of at most 10 ms of it.
func TestRate(t *testing.T) {
	for _, tt := range []struct{ rate, parallelism int }{{1000, 1}, {1000, 4}, {333, 2}, {100_000, 1}, {1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			r := openFirst(t, throttle.PerSecond(datagen.Sequence(2_000_000, datagen.WithSplits(1)), tt.rate), tt.parallelism, nil)
			share := float64(tt.rate) / float64(tt.parallelism)
			start := time.Now()
			const length = 10 * time.Second
			var n int
			for time.Since(start) < length {
				batch, err := r.Fetch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				burst := 0
				for v := uint64(0); ; n, burst = n+1, burst+1 {
					if ok, err := batch.Next(&v); err != nil || !ok {
						break
					}
					if v != uint64(n) {
						t.Fatalf("record %d came as number %d", v, n)
					}
				}
				if most := max(1, share/100); float64(burst) > most {
					t.Fatalf("rate %d: burst of %d records, want at most %g", tt.rate, burst, most)
				}
				due := time.Since(start).Seconds()*share + max(1, share/100)
				if float64(n) > due+1 {
					t.Fatalf("rate %d: %d records after %v, want at most %.1f", tt.rate, n, time.Since(start), due)
				}
			}
			if want := share * length.Seconds(); float64(n) < want*0.99 {
				t.Errorf("rate %d over %d subtasks: one gave %d records in %v, want %.0f", tt.rate, tt.parallelism, n, length, want)
			}
		})
	}
}

// After a stop, at most one second's worth is caught up on.
func TestDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openFirst(t, throttle.PerSecond(datagen.Sequence(1_000_000, datagen.WithSplits(1)), 1000), 1, nil)
		count := func(length time.Duration) (n int) {
			start := time.Now()
			for time.Since(start) < length {
				batch, err := r.Fetch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for v := uint64(0); ; n++ {
					if ok, err := batch.Next(&v); err != nil || !ok {
						break
					}
				}
			}
			return n
		}
		count(time.Second)
		<-time.After(time.Minute) // the job is blocked
		if n := count(time.Second); n < 1900 || n > 2100 {
			t.Errorf("%d records in the second after a stop, want 2000", n)
		}
		if n := count(time.Second); n < 950 || n > 1050 {
			t.Errorf("%d records in the second after that, want 1000", n)
		}
	})
}

// The rate holds over splits that are shorter than a burst.
func TestSmallSplits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, rate = 30, 10
		src := throttle.PerSecond(datagen.Sequence(records, datagen.WithSplits(records)), rate)
		splits, _, err := src.ListSplits(t.Context(), contextOf(1))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		n := 0
		for _, split := range splits {
			r, err := src.OpenReader(t.Context(), contextOf(1), split, nil)
			if err != nil {
				t.Fatal(err)
			}
			for {
				batch, err := r.Fetch(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for v := uint64(0); ; n++ {
					if ok, err := batch.Next(&v); err != nil || !ok {
						break
					}
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); n != records || took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("%d records in %v, want %d in 3 s", n, took, records)
		}
	})
}

// The position behind a burst is the next record's, also within a batch of
// the source below.
func TestPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := throttle.PerSecond(datagen.Sequence(50, datagen.WithSplits(1)), 1000)
		var position []byte
		var got []uint64
		for ended := false; !ended; { // a restart after every burst
			r := openFirst(t, src, 1, position)
			batch, err := r.Fetch(t.Context())
			if ended = errors.Is(err, io.EOF); ended {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			var v uint64
			for ok := true; ok; {
				if ok, err = batch.Next(&v); err != nil {
					t.Fatal(err)
				}
				if ok {
					got = append(got, v)
				}
				position = batch.Position()
			}
		}
		for i, v := range got {
			if v != uint64(i) {
				t.Fatalf("record %d is %d", i, v)
			}
		}
		if len(got) != 50 {
			t.Errorf("%d records, want 50", len(got))
		}
	})
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openFirst(t, throttle.PerSecond(datagen.Sequence(10, datagen.WithSplits(1)), 1), 1000, nil)
		batch, err := r.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var v uint64
		if ok, err := batch.Next(&v); !ok || err != nil {
			t.Fatal(ok, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Fetch(ctx); !errors.Is(err, context.DeadlineExceeded) { // due in 1000 s
			t.Errorf("error %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	src := datagen.Sequence(10)
	if throttle.PerSecond(src, 0) != src {
		t.Error("no limit does not give the source itself")
	}
	limited := throttle.PerSecond(src, 7)
	d := limited.Describe()
	if d.Options["rate"] != "7" || d.Options["connector"] != "datagen.Sequence" || !d.Bounded {
		t.Errorf("described as %+v", d)
	}
	if src.Describe().Options["rate"] != "" {
		t.Error("the source below describes the rate")
	}
	if err := limited.(operator.Validator).Validate(); err != nil {
		t.Error(err)
	}
	if err := throttle.PerSecond(src, -1).(operator.Validator).Validate(); err == nil {
		t.Error("a negative rate is valid")
	}
	if err := throttle.PerSecond(datagen.Sequence(10, datagen.WithSplits(-1)), 7).(operator.Validator).Validate(); err == nil {
		t.Error("a bad option of the source below is valid")
	}
}
