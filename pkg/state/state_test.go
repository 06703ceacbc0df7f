package state_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// processContext stands for the context types that the SDK gives to users.
type processContext[K comparable] struct{ *state.Keyed[K] }

type agg struct {
	Flights  int64
	DelaySum int64
}

// The key type follows from the context, also through embedding.
func TestStateOfTheCurrentKey(t *testing.T) {
	ctx := &processContext[string]{openKeyed[string](t)}
	v, err := state.NewValue[agg](ctx, "agg")
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Backend().Restore(nil); err != nil {
		t.Fatal(err)
	}
	for i, origin := range []string{"ABQ", "SFO", "ABQ", "ABQ", ""} {
		if err := ctx.SetCurrentKey(origin); err != nil {
			t.Fatal(err)
		}
		a, found, err := v.Get()
		if err != nil || found != (a.Flights > 0) {
			t.Fatalf("record %d: %+v %v %v", i, a, found, err)
		}
		a.Flights++
		if err := v.Set(a); err != nil {
			t.Fatal(err)
		}
	}
	for origin, want := range map[string]int64{"ABQ": 3, "SFO": 1, "": 1} {
		hash := ctx.Hash(&origin)
		ctx.Prefetch([]uint32{hash})
		if err := ctx.SetHashedKey(origin, hash); err != nil {
			t.Fatal(err)
		}
		if a, found, err := v.Get(); err != nil || !found || a.Flights != want || ctx.CurrentKey() != origin {
			t.Errorf("%q: %+v %v %v", origin, a, found, err)
		}
	}
	if n := ctx.Backend().Stats().Entries; n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}

// named is a codec with a name of its own.
type named struct{ codec.Codec[agg] }

func (named) Name() string { return "by-hand/7" }

func TestWithCodec(t *testing.T) {
	inner, err := codec.For[agg]()
	if err != nil {
		t.Fatal(err)
	}
	k := openKeyed[string](t)
	if _, err := state.NewValue[agg](k, "agg", state.WithCodec[agg](named{inner})); err != nil {
		t.Fatal(err)
	}
	if err := k.Backend().Restore(nil); err != nil {
		t.Fatal(err)
	}
	f, err := k.Backend().Freeze()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	_, states, err := f.WriteSnapshot(&strings.Builder{})
	if err != nil || len(states) != 1 || states[0].Codec != "by-hand/7" {
		t.Errorf("%+v, %v", states, err)
	}
}

// A stored key must not keep alive, nor follow, the memory it was cut from.
func TestStoredKeysAreCopies(t *testing.T) {
	k := openKeyed[string](t)
	v, err := state.NewValue[int64](k, "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Backend().Restore(nil); err != nil {
		t.Fatal(err)
	}
	record := []byte("ABQ,SFO")
	if err := k.SetCurrentKey(string(record[:3])); err != nil {
		t.Fatal(err)
	}
	if err := v.Set(1); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := k.SetCurrentKey("ABQ"); err != nil {
			t.Fatal(err)
		}
		n, _, err := v.Get()
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Set(n + 1); err != nil {
			t.Fatal(err)
		}
		p, _, err := v.Ref()
		if err != nil {
			t.Fatal(err)
		}
		*p++
	}); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
}

// I7: a subtask takes exactly the keys of its own range, with the same
// arithmetic as the sender that routed them.
func TestOnlyOwnKeysAreTaken(t *testing.T) {
	encoding, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.OneOf(rapid.Just(128), rapid.IntRange(1, 300), rapid.Just(keygroup.MaxParallelismLimit)).Draw(t, "max parallelism")
		parallelism := rapid.IntRange(1, min(groups, 9)).Draw(t, "parallelism")
		index := rapid.IntRange(0, parallelism-1).Draw(t, "index")
		r := keygroup.RangeOf(index, parallelism, groups)
		k, err := state.NewKeyed[uint64](state.Options{Operator: "op", Range: r, MaxParallelism: groups, Backend: memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		key := rapid.Uint64().Draw(t, "key")
		g := keygroup.OfHash(encoding.Hash(&key), groups)
		err = k.SetCurrentKey(key)
		if owned := keygroup.OwnerOf(g, parallelism, groups) == index; owned != (err == nil) {
			t.Fatalf("key %d of group %d under range %s: %v", key, g, r, err)
		}
		if err != nil {
			for _, part := range []string{`"op"`, fmt.Sprint(key), fmt.Sprint("key group ", g), r.String()} {
				if !strings.Contains(err.Error(), part) {
					t.Fatalf("error %q does not name %q", err, part)
				}
			}
		}
	})
}

func TestNewKeyedRefuses(t *testing.T) {
	good := state.Options{Operator: "op", Range: keygroup.Range{First: 0, Last: 127}, MaxParallelism: 128, Backend: memory.New()}
	for name, change := range map[string]func(o *state.Options){
		"no backend":           func(o *state.Options) { o.Backend = nil },
		"no groups":            func(o *state.Options) { o.MaxParallelism = 0 },
		"too many groups":      func(o *state.Options) { o.MaxParallelism = 1 << 20 },
		"range beyond groups":  func(o *state.Options) { o.Range.Last = 128 },
		"range without groups": func(o *state.Options) { o.Range.First, o.Range.Last = 5, 4 },
	} {
		o := good
		change(&o)
		if _, err := state.NewKeyed[string](o); err == nil || !strings.Contains(err.Error(), `"op"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := state.NewKeyed[float64](good); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("float keys: %v", err)
	}
	k, err := state.NewKeyed[string](good)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("n", 101)} {
		if _, err := state.NewValue[int](k, name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

func ExampleNewValue() {
	keyed, err := state.NewKeyed[string](state.Options{
		Operator: "count", Range: keygroup.RangeOf(0, 1, 128), MaxParallelism: 128, Backend: memory.New(),
	})
	if err != nil {
		panic(err)
	}
	// In the operator's Open:
	count, err := state.NewValue[int64](keyed, "count")
	if err != nil {
		panic(err)
	}
	// The runtime, when the operator is open:
	if err := keyed.Backend().Restore(nil); err != nil {
		panic(err)
	}
	for _, word := range []string{"to", "be", "or", "not", "to", "be"} {
		// The runtime, before each record:
		if err := keyed.SetCurrentKey(word); err != nil {
			panic(err)
		}
		// The operator:
		n, _, err := count.Get()
		if err != nil {
			panic(err)
		}
		if err := count.Set(n + 1); err != nil {
			panic(err)
		}
		fmt.Println(word, n+1)
	}
	// Output:
	// to 1
	// be 1
	// or 1
	// not 1
	// to 2
	// be 2
}
