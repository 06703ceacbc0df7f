package state_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

const (
	benchKeys = 1_000_000
	// benchDraws is a power of two, so that going round costs a mask.
	benchDraws = 1 << 22
)

// draws are uniform keys of benchKeys different ones, spread over all of uint64.
var draws = func() []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, benchKeys)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	d := make([]uint64, benchDraws)
	for i := range d {
		d[i] = keys[r.IntN(benchKeys)]
	}
	return d
}()

func openKeyed[K comparable](tb testing.TB) *state.Keyed[K] {
	tb.Helper()
	k, err := state.NewKeyed[K](state.Options{
		Operator: "bench", Range: keygroup.RangeOf(0, 1, 128), MaxParallelism: 128, Backend: memory.New(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func openCount(tb testing.TB) (*state.Keyed[uint64], state.Value[uint64]) {
	tb.Helper()
	k := openKeyed[uint64](tb)
	v, err := state.NewValue[uint64](k, "count")
	if err != nil {
		tb.Fatal(err)
	}
	if err := k.Backend().Restore(nil); err != nil {
		tb.Fatal(err)
	}
	for _, key := range draws {
		count(k, v, key)
	}
	return k, v
}

func count(k *state.Keyed[uint64], v state.Value[uint64], key uint64) {
	if err := k.SetCurrentKey(key); err != nil {
		panic(err)
	}
	n, _, err := v.Get()
	if err != nil {
		panic(err)
	}
	if err := v.Set(n + 1); err != nil {
		panic(err)
	}
}

// BenchmarkMapRMW is the baseline: a preallocated Go map.
func BenchmarkMapRMW(b *testing.B) {
	m := make(map[uint64]uint64, benchKeys)
	for _, key := range draws {
		m[key]++
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m[draws[i&(benchDraws-1)]]++
	}
}

func BenchmarkValueRMW(b *testing.B) {
	k, v := openCount(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		count(k, v, draws[i&(benchDraws-1)])
	}
}

func BenchmarkValueRef(b *testing.B) {
	k, v := openCount(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := k.SetCurrentKey(draws[i&(benchDraws-1)]); err != nil {
			b.Fatal(err)
		}
		n, _, err := v.Ref()
		if err != nil {
			b.Fatal(err)
		}
		*n++
	}
}

// BenchmarkRMWRatio interleaves stretches of both loops and compares their
// medians, because the machine's speed drifts more between two benchmarks
// than the two differ.
func BenchmarkRMWRatio(b *testing.B) {
	const stretch = 1 << 16
	m := make(map[uint64]uint64, benchKeys)
	for _, key := range draws {
		m[key]++
	}
	k, v := openCount(b)
	var byMap, byGetSet, byRef, byBatch []float64
	var hashes [16]uint32
	at := 0
	timed := func(f func(key uint64)) float64 {
		begin := time.Now()
		for range stretch {
			at = (at + 1) & (benchDraws - 1)
			f(draws[at])
		}
		return float64(time.Since(begin).Nanoseconds()) / stretch
	}
	b.ResetTimer()
	for range b.N {
		byMap = append(byMap, timed(func(key uint64) { m[key]++ }))
		byGetSet = append(byGetSet, timed(func(key uint64) {
			if err := k.SetCurrentKey(key); err != nil {
				b.Fatal(err)
			}
			n, _, err := v.Get()
			if err != nil {
				b.Fatal(err)
			}
			if err := v.Set(n + 1); err != nil {
				b.Fatal(err)
			}
		}))
		byRef = append(byRef, timed(func(key uint64) {
			if err := k.SetCurrentKey(key); err != nil {
				b.Fatal(err)
			}
			n, _, err := v.Ref()
			if err != nil {
				b.Fatal(err)
			}
			*n++
		}))
		begin := time.Now()
		for range stretch / len(hashes) {
			at = (at + len(hashes)) & (benchDraws - 1)
			keys := draws[at&^(len(hashes)-1):][:len(hashes)]
			for i := range keys {
				hashes[i] = k.Hash(&keys[i])
			}
			k.Prefetch(hashes[:])
			for i, key := range keys {
				if err := k.SetHashedKey(key, hashes[i]); err != nil {
					b.Fatal(err)
				}
				n, _, err := v.Get()
				if err != nil {
					b.Fatal(err)
				}
				if err := v.Set(n + 1); err != nil {
					b.Fatal(err)
				}
			}
		}
		byBatch = append(byBatch, float64(time.Since(begin).Nanoseconds())/stretch)
		at = at &^ 15
	}
	b.ReportMetric(median(byBatch), "batch-ns")
	b.ReportMetric(median(byMap)/median(byBatch), "batch-ratio")
	b.ReportMetric(median(byMap), "map-ns")
	b.ReportMetric(median(byGetSet), "getset-ns")
	b.ReportMetric(median(byRef), "ref-ns")
	b.ReportMetric(median(byMap)/median(byGetSet), "getset-ratio")
	b.ReportMetric(median(byMap)/median(byRef), "ref-ratio")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
