package memory

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

func tableOf[K comparable, V any](tb testing.TB) *table[K, V] {
	tb.Helper()
	key, err := keygroup.NewEncoding[K]()
	if err != nil {
		tb.Fatal(err)
	}
	c, err := codec.For[V]()
	if err != nil {
		tb.Fatal(err)
	}
	t := newTable(valueTraits(statebackend.Descriptor[K, V]{Key: key, Codec: c}))
	t.forgetSlot = func() {}
	return t
}

// contentOf reads a table's entries where they lie, not by looking them up.
func contentOf(roots *[rootCount]root[uint64, []int32]) map[uint64]int32 {
	out := map[uint64]int32{}
	for i := range roots {
		for j := 0; j < 1<<roots[i].depth; {
			p := roots[i].entry(j)
			for _, s := range p.entries() {
				out[s.key] = s.value[0]
			}
			j += 1 << (roots[i].depth - p.depth)
		}
	}
	return out
}

// check compares a table with its model, and its counts with its content.
func check(t *testing.T, tb *table[uint64, []int32], want map[uint64]int32) {
	t.Helper()
	if got := contentOf(&tb.roots); !maps.Equal(got, want) {
		t.Fatalf("the table has %d entries, not the %d of the model", len(got), len(want))
	}
	if tb.entries != int64(len(want)) {
		t.Fatalf("%d entries counted, want %d", tb.entries, len(want))
	}
	for k, v := range want {
		_, _, s := tb.find(tb.traits.key.Hash(&k), &k)
		if s == nil || s.value[0] != v {
			t.Fatalf("key %d is not found as %d", k, v)
		}
	}
	for i := range tb.roots {
		r := &tb.roots[i]
		for j := range 1 << r.depth {
			p := r.entry(j)
			used := 0
			for range p.entries() {
				used++
			}
			if used != int(p.used) || p.depth > r.depth || r.aliases(j)[0] != *p {
				t.Fatalf("root %d entry %d: %d of %d entries, depth %d of %d", i, j, used, p.used, p.depth, r.depth)
			}
		}
	}
}

// hashes that leave few groups to choose from make full groups, long probes
// and pages that splitting does not help, all of which uniform hashes avoid.
func narrow(r *rand.Rand, keys int, keep func(x uint64) bool, hash func(*uint64) uint32) []uint64 {
	var out []uint64
	for len(out) < keys {
		if k := r.Uint64(); keep(uint64(hash(&k)) * spread) {
			out = append(out, k)
		}
	}
	return out
}

// The table against a map, under views that must not change: insertions,
// changes through the value's own memory, removals from full groups.
func TestTableAgainstModel(t *testing.T) {
	for name, keep := range map[string]func(x uint64) bool{
		"uniform":   func(uint64) bool { return true },
		"one root":  func(x uint64) bool { return x>>(64-rootBits) == 5 },
		"one group": func(x uint64) bool { return start(x)&31 == 3 && x>>(64-4) == 9 },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			tb := tableOf[uint64, []int32](t)
			keys := narrow(r, 1500, keep, tb.traits.key.Hash)
			model := map[uint64]int32{}
			type old struct {
				f    *frozenTable[uint64, []int32]
				want map[uint64]int32
			}
			var views []old
			for i := range 60_000 {
				k := keys[r.IntN(1+(len(keys)-1)*min(i, 30_000)/30_000)]
				h := tb.traits.key.Hash(&k)
				switch {
				case r.IntN(5) < 2:
					tb.remove(h, &k)
					delete(model, k)
				default:
					s := tb.private(h, &k)
					if _, ok := model[k]; ok != (s != nil) {
						t.Fatalf("key %d: found %v", k, s != nil)
					}
					if s == nil {
						var err error
						if s, err = tb.insert(h, &k); err != nil {
							t.Fatal(err)
						}
						s.value = []int32{0}
					}
					s.value[0]++
					model[k]++
				}
				if r.IntN(500) == 0 {
					views = append(views, old{tb.freeze().(*frozenTable[uint64, []int32]), maps.Clone(model)})
				}
				if len(views) > 0 && r.IntN(500) == 0 {
					at := r.IntN(len(views))
					v := views[at]
					if !maps.Equal(contentOf(&v.f.roots), v.want) {
						t.Fatal("a view changed")
					}
					v.f.release()
					views = append(views[:at], views[at+1:]...)
				}
				if i%5000 == 0 {
					check(t, tb, model)
				}
			}
			check(t, tb, model)
		})
	}
}

// Keys chosen to collide cost memory and time in proportion to their number,
// and beyond a bound an error: no endless splitting.
func TestCollidingHashesAreBounded(t *testing.T) {
	tb := tableOf[uint64, uint64](t)
	const same = 0x12345678
	n := 0
	for k := uint64(0); ; k++ {
		s, err := tb.insert(same, &k)
		if err != nil {
			break
		}
		s.value = k
		if n++; n > groupSlots<<log2Limit {
			t.Fatal("no end")
		}
	}
	if n < 10_000 {
		t.Errorf("only %d keys of one hash", n)
	}
	if tb.bytes > 8<<20 {
		t.Errorf("%d bytes for %d keys", tb.bytes, n)
	}
}

// Freezing costs the same whatever the table holds, and a table with few keys
// stays small.
func TestFreezeAllocatesTheSameAtAnySize(t *testing.T) {
	cost := func(keys int) float64 {
		tb := tableOf[uint64, uint64](t)
		for k := range uint64(keys) {
			h := tb.traits.key.Hash(&k)
			if _, err := tb.insert(h, &k); err != nil {
				t.Fatal(err)
			}
		}
		if keys < 100 && tb.bytes > 64<<10 {
			t.Errorf("%d bytes for %d keys", tb.bytes, keys)
		}
		return testing.AllocsPerRun(10, func() { tb.freeze().release() })
	}
	if small, large := cost(50), cost(100_000); small != large || small > 1 {
		t.Errorf("%v allocations for a small table, %v for a large one", small, large)
	}
}
