package state_test

import (
	"math/rand/v2"
	"testing"

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
