package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// manyKeys makes tables grow through every size, shrink, and be frozen on the way.
func manyKeys(t *testing.T, b statebackend.Backend) {
	const keys, maxParallelism = 60_000, 128
	o := open[uint64](t, b, 1, 2, maxParallelism)
	must(t, o.keyed.Backend().Restore(nil))
	encoding, err := keygroup.NewEncoding[uint64]()
	must(t, err)
	want := map[uint64]int64{}
	var parts []stored
	r := keygroup.RangeOf(1, 2, maxParallelism)
	for k := uint64(0); k < keys; k++ {
		if !r.Contains(keygroup.OfHash(encoding.Hash(&k), maxParallelism)) {
			continue
		}
		must(t, o.keyed.SetCurrentKey(k))
		must(t, o.flat.Set(int64(k)))
		want[k] = int64(k)
		if k%3 == 0 {
			must(t, o.flat.Clear())
			delete(want, k)
		}
		if k == keys/2 {
			f, err := o.keyed.Backend().Freeze()
			must(t, err)
			before := maps.Clone(want)
			defer func() {
				checkPart(t, b, write(t, f, r), before)
				f.Release()
			}()
		}
	}
	f, err := o.keyed.Backend().Freeze()
	must(t, err)
	parts = append(parts, write(t, f, r))
	f.Release()
	checkPart(t, b, parts[0], want)
}

func checkPart(t *testing.T, b statebackend.Backend, p stored, want map[uint64]int64) {
	t.Helper()
	m := &machine[uint64]{maxParallelism: 128, parallelism: 3}
	var err error
	m.encoding, err = keygroup.NewEncoding[uint64]()
	must(t, err)
	m.subtasks = openAll[uint64](t, b, m.parallelism, m.maxParallelism, []stored{p})
	m.verify(t, content[uint64]{flat: want})
	m.stop(t)
}

// snapshotOf writes a subtask that owns everything after f has filled it.
func snapshotOf[K comparable](t *testing.T, b statebackend.Backend, fill func(o *operator[K])) stored {
	t.Helper()
	o := open[K](t, b, 0, 1, 128)
	must(t, o.keyed.Backend().Restore(nil))
	fill(o)
	f, err := o.keyed.Backend().Freeze()
	must(t, err)
	defer f.Release()
	return write(t, f, keygroup.Range{First: 0, Last: 127})
}

func equalBytes(t *testing.T, b statebackend.Backend) {
	const keys = 3000
	set := func(o *operator[string], i int) {
		must(t, o.keyed.SetCurrentKey(fmt.Sprintf("a-common-beginning-%d", i)))
		must(t, o.flat.Set(int64(i)))
		must(t, o.deep.Set(deepValue{Map: map[string]int32{"a": 1, "b": int32(i), "c": 3}}))
	}
	up := snapshotOf(t, b, func(o *operator[string]) {
		for i := range keys {
			set(o, i)
		}
	})
	down := snapshotOf(t, b, func(o *operator[string]) {
		for i := range 2 * keys {
			set(o, 2*keys-1-i)
		}
		for i := keys; i < 2*keys; i++ {
			must(t, o.keyed.SetCurrentKey(fmt.Sprintf("a-common-beginning-%d", i)))
			must(t, errors.Join(o.flat.Clear(), o.deep.Clear()))
		}
	})
	if !bytes.Equal(up.Data, down.Data) || !slices.Equal(up.Offsets, down.Offsets) {
		t.Error("two ways to the same content give different snapshots")
	}
}

func orderedKeys(t *testing.T, b statebackend.Backend) {
	p := snapshotOf(t, b, func(o *operator[string]) {
		for _, key := range []string{"", "a", "a\x00", "a\x00\x00", "aaaaaaa", "aaaaaaaa", "aaaaaaaab", "aaaaaaa\x00", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b"} {
			for i := range 200 { // several in every key group
				must(t, o.keyed.SetCurrentKey(key+strings.Repeat("\x00", i)))
				must(t, o.flat.Set(1))
			}
		}
	})
	must(t, p.Groups(p.Range, func(g keygroup.Group, data []byte) error {
		var last []byte
		return statebackend.ReadGroup(data, len(p.States), func(_ int, key, _ []byte) error {
			if last != nil && bytes.Compare(last, key) >= 0 {
				t.Errorf("key group %d has %q before %q", g, last, key)
			}
			last = append([]byte{}, key...)
			return nil
		})
	}))
}

func expectError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}

func life(t *testing.T, b statebackend.Backend) {
	o := open[string](t, b, 0, 2, 128)
	_, err := state.NewValue[int64](o.keyed, "flat")
	expectError(t, err, `"op"`, `"flat"`, "registered already")
	_, err = state.NewValue[func()](o.keyed, "callback")
	expectError(t, err, `"op"`, `"callback"`, "func()")
	must(t, o.keyed.Backend().Restore(nil))
	_, err = state.NewValue[int64](o.keyed, "late")
	expectError(t, err, `"late"`, "opened")
	expectError(t, o.keyed.Backend().Restore(nil), `"op"`)

	if _, _, err := o.flat.Get(); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("Get without a key: %v", err)
	}
	if _, _, err := o.flat.Ref(); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("Ref without a key: %v", err)
	}
	if err := errors.Join(o.flat.Set(1)); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("Set without a key: %v", err)
	}
	if err := o.flat.Clear(); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("Clear without a key: %v", err)
	}
	encoding, err := keygroup.NewEncoding[string]()
	must(t, err)
	own, foreign := "", ""
	for i := 0; own == "" || foreign == ""; i++ {
		key := fmt.Sprint("k", i)
		if keygroup.OfHash(encoding.Hash(&key), 128) < 64 {
			own = key
		} else {
			foreign = key
		}
	}
	must(t, o.keyed.SetCurrentKey(own))
	must(t, o.flat.Set(5))
	expectError(t, o.keyed.SetCurrentKey(foreign), foreign, "0-63", fmt.Sprint("key group ", keygroup.OfHash(encoding.Hash(&foreign), 128)))
	if _, _, err := o.flat.Get(); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("Get under a foreign key: %v", err)
	}
	must(t, o.keyed.Backend().Close())
}

func mismatches(t *testing.T, b statebackend.Backend) {
	p := snapshotOf(t, b, func(o *operator[string]) {
		must(t, o.keyed.SetCurrentKey("k"))
		must(t, o.flat.Set(1))
	})
	if len(p.States) != 2 || p.States[1].Name != "deep" {
		t.Fatalf("states %+v: an empty one must be listed too", p.States)
	}
	restore := func(register func(k *state.Keyed[string])) error {
		keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: p.Range, MaxParallelism: 128, Backend: b})
		must(t, err)
		register(keyed)
		return keyed.Backend().Restore([]stored{p})
	}
	expectError(t, restore(func(k *state.Keyed[string]) {
		_, err := state.NewValue[int64](k, "flat")
		must(t, err)
	}), `"op"`, `"deep"`, "not register")
	expectError(t, restore(func(k *state.Keyed[string]) {
		_, err := state.NewValue[int32](k, "flat")
		must(t, err)
		_, err = state.NewValue[deepValue](k, "deep")
		must(t, err)
	}), `"op"`, `"flat"`, "int64", "int32")
	o := open[uint64](t, b, 0, 1, 128)
	expectError(t, o.keyed.Backend().Restore([]stored{p}), `"op"`, "key/1:string", "key/1:uint64")
}

// corruption: whatever is wrong with stored bytes is an error of the restore.
func corruption(t *testing.T, b statebackend.Backend) {
	p := snapshotOf(t, b, func(o *operator[string]) {
		for i := range 300 {
			must(t, o.keyed.SetCurrentKey(fmt.Sprint("key-", i)))
			must(t, o.flat.Set(int64(i)))
			must(t, o.deep.Set(deepValue{Name: "n", List: []int64{1, 2}}))
		}
	})
	restore := func(parts ...stored) error {
		o := open[string](t, b, 0, 1, 128)
		return o.keyed.Backend().Restore(parts)
	}
	must(t, restore(p))
	with := func(f func(p *stored)) stored {
		q := stored{Range: p.Range, Offsets: slices.Clone(p.Offsets), States: slices.Clone(p.States), Data: slices.Clone(p.Data)}
		f(&q)
		return q
	}
	for name, q := range map[string]stored{
		"truncated":            with(func(p *stored) { p.Data = p.Data[:len(p.Data)-1] }),
		"negative offset":      with(func(p *stored) { p.Offsets[0] = -1 }),
		"offsets out of order": with(func(p *stored) { p.Offsets[3] = p.Offsets[2] - 1 }),
		"offset too far":       with(func(p *stored) { p.Offsets[128]++ }),
		"too few offsets":      with(func(p *stored) { p.Offsets = p.Offsets[:100] }),
		"no offsets":           with(func(p *stored) { p.Offsets = nil }),
		"another range":        with(func(p *stored) { p.Range.First++; p.Offsets = p.Offsets[:128] }),
		"inverted range":       with(func(p *stored) { p.Range = keygroup.Range{First: 5, Last: 2} }),
		"format version":       with(func(p *stored) { p.Data[p.Offsets[0]] = 9 }),
		"state listed twice":   with(func(p *stored) { p.States[1] = p.States[0] }),
		"too few states":       with(func(p *stored) { p.States = p.States[:1] }),
	} {
		if err := restore(q); err == nil {
			t.Errorf("%s: restored", name)
		} else if !strings.Contains(err.Error(), `"op"`) {
			t.Errorf("%s: error %q does not name the operator", name, err)
		}
	}
	if err := restore(p, p); !errors.Is(err, statebackend.ErrCorrupt) {
		t.Errorf("one snapshot twice: %v", err)
	}
	// Any other damage may go unnoticed here (the checksum of the file finds
	// it), but it must not panic.
	rapid.Check(t, func(t *rapid.T) {
		q := with(func(p *stored) {
			for range rapid.IntRange(1, 4).Draw(t, "damages") {
				at := rapid.IntRange(0, len(p.Data)-1).Draw(t, "at")
				p.Data[at] = rapid.Byte().Draw(t, "byte")
			}
		})
		o := open[string](t, b, 0, 1, 128)
		_ = o.keyed.Backend().Restore([]stored{q})
		must(t, o.keyed.Backend().Close())
	})
}

// concurrentWrite writes snapshots on other goroutines, as the runtime does;
// under the race detector it shows what frozen and live state share.
func concurrentWrite(t *testing.T, b statebackend.Backend) {
	const keys, rounds = 3000, 6
	r := keygroup.Range{First: 0, Last: 127}
	o := open[uint64](t, b, 0, 1, 128)
	must(t, o.keyed.Backend().Restore(nil))
	type result struct {
		part stored
		err  error
	}
	results := make([]chan result, rounds)
	for round := range rounds {
		for k := range uint64(keys) {
			must(t, o.keyed.SetCurrentKey(k*uint64(round+1)))
			must(t, o.flat.Set(int64(round)))
			v, _, err := o.deep.Get()
			must(t, err)
			change(&v)
			v.List = append(v.List, int64(round))
			must(t, o.deep.Set(v))
			if k%5 == 4 {
				must(t, errors.Join(o.flat.Clear(), o.deep.Clear()))
			}
		}
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		done := make(chan result, 1)
		results[round] = done
		// Waited for below, through its result.
		go func() {
			defer f.Release()
			var buf bytes.Buffer
			offsets, states, err := f.WriteSnapshot(&buf)
			done <- result{stored{Range: r, Offsets: offsets, States: states, Data: buf.Bytes()}, err}
		}()
	}
	for round, done := range results {
		got := <-done
		must(t, got.err)
		again := open[uint64](t, b, 0, 1, 128)
		must(t, again.keyed.Backend().Restore([]stored{got.part}))
		must(t, again.keyed.SetCurrentKey(uint64(round+1)))
		if v, _, err := again.flat.Get(); err != nil || v != int64(round) {
			t.Errorf("round %d is %d in its snapshot, %v", round, v, err)
		}
		must(t, again.keyed.Backend().Close())
	}
}

// limitedWriter fails after some bytes, as a full disk does.
type limitedWriter struct{ left int }

var errFull = errors.New("no space left")

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func failedWrite(t *testing.T, b statebackend.Backend) {
	o := open[uint64](t, b, 0, 1, 128)
	must(t, o.keyed.Backend().Restore(nil))
	want := map[uint64]int64{}
	for k := range uint64(20_000) {
		must(t, o.keyed.SetCurrentKey(k))
		must(t, o.flat.Set(int64(k)))
		want[k] = int64(k)
	}
	f, err := o.keyed.Backend().Freeze()
	must(t, err)
	_, states, err := f.WriteSnapshot(&limitedWriter{left: 100_000})
	if !errors.Is(err, errFull) || states != nil {
		t.Errorf("write to a full disk: %v", err)
	}
	p := write(t, f, keygroup.Range{First: 0, Last: 127})
	f.Release()
	checkPart(t, b, p, want)
}
