package memory

import (
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// stateOf opens a State with one table and fills it with n keys.
func stateOf[K comparable](b *testing.B, n int, key func(i int) K) (*State, *table[K, uint64]) {
	b.Helper()
	tb := tableOf[K, uint64](b)
	s := &State{
		options:  statebackend.Options{Operator: "bench", Range: keygroup.Range{First: 0, Last: 127}, MaxParallelism: 128},
		valueMax: 1 << 20,
		tables:   []registered{tb}, metas: []snapshot.StateMeta{{Name: "t"}}, restored: true,
	}
	for i := range n {
		k := key(i)
		h := tb.traits.key.Hash(&k)
		if tb.private(h, &k) == nil {
			if _, err := tb.insert(h, &k); err != nil {
				b.Fatal(err)
			}
		}
	}
	return s, tb
}

func scattered(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }

func frozenOf(b *testing.B, s *State) statebackend.Frozen {
	b.Helper()
	f, err := s.Freeze()
	if err != nil {
		b.Fatal(err)
	}
	return f
}

func BenchmarkFreeze(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000, 10_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, _ := stateOf(b, n, scattered)
			for b.Loop() {
				frozenOf(b, s).Release()
			}
		})
	}
}

// BenchmarkFirstWriteAfterFreeze is the write that finds everything shared.
func BenchmarkFirstWriteAfterFreeze(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, tb := stateOf(b, n, scattered)
			i := 0
			for b.Loop() {
				f := frozenOf(b, s)
				k := scattered(i % n)
				tb.private(tb.traits.key.Hash(&k), &k).value++
				f.Release()
				i += 7919
			}
		})
	}
}

// BenchmarkInsert reports the worst single insert beside the mean: there is no
// rehash of the whole. The worst of a busy machine is the scheduler's.
func BenchmarkInsert(b *testing.B) {
	const n = 10_000_000
	var total, worst time.Duration
	var bytes int64
	for b.Loop() {
		tb := tableOf[uint64, uint64](b)
		for i := range n {
			k := scattered(i)
			begin := time.Now()
			if _, err := tb.insert(tb.traits.key.Hash(&k), &k); err != nil {
				b.Fatal(err)
			}
			took := time.Since(begin)
			total += took
			worst = max(worst, took)
		}
		bytes = tb.bytes
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-us")
	b.ReportMetric(float64(bytes)/n, "bytes/key")
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N)/n, "ns/key")
}

func BenchmarkWriteSnapshot(b *testing.B) {
	const n = 1_000_000
	run := func(b *testing.B, s *State) {
		f := frozenOf(b, s)
		defer f.Release()
		for b.Loop() {
			if _, _, err := f.WriteSnapshot(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	}
	b.Run("uint64", func(b *testing.B) {
		s, _ := stateOf(b, n, scattered)
		run(b, s)
	})
	b.Run("string", func(b *testing.B) {
		s, _ := stateOf(b, n, func(i int) string { return "customer-" + strconv.Itoa(i) })
		run(b, s)
	})
}

// BenchmarkDuringSnapshot is read-modify-write of uniform keys while a view is
// written over and over on another goroutine, against the same before.
func BenchmarkDuringSnapshot(b *testing.B) {
	const n, stretch = 1_000_000, 1_000_000
	s, tb := stateOf(b, n, scattered)
	r := rand.New(rand.NewPCG(1, 2))
	draws := make([]uint64, stretch)
	for i := range draws {
		draws[i] = scattered(r.IntN(n))
	}
	rmw := func() float64 {
		begin := time.Now()
		for i := range draws {
			k := &draws[i]
			tb.private(tb.traits.key.Hash(k), k).value++
		}
		return float64(time.Since(begin).Nanoseconds()) / stretch
	}
	var before, during float64
	for b.Loop() {
		runtime.GC()
		before += rmw()
		f := frozenOf(b, s)
		done := make(chan error)
		go func() {
			_, _, err := f.WriteSnapshot(io.Discard)
			f.Release()
			done <- err
		}()
		during += rmw()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(before/float64(b.N), "before-ns")
	b.ReportMetric(during/float64(b.N), "during-ns")
}
