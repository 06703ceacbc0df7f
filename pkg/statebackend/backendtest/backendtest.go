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

// Factory makes a fresh backend for one run of the suite; what it needs on
// disk it takes from t.TempDir.
type Factory func(t *testing.T) statebackend.Backend

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	t.Run("model/string keys", func(t *testing.T) { modelRun(t, factory(t), drawString) })
	t.Run("model/uint64 keys", func(t *testing.T) { modelRun(t, factory(t), drawWord) })
	t.Run("model/struct keys", func(t *testing.T) { modelRun(t, factory(t), drawPair) })
	t.Run("many keys", func(t *testing.T) { manyKeys(t, factory(t)) })
	t.Run("equal content gives equal bytes", func(t *testing.T) { equalBytes(t, factory(t)) })
	t.Run("keys are ordered by their bytes", func(t *testing.T) { orderedKeys(t, factory(t)) })
	t.Run("life", func(t *testing.T) { life(t, factory(t)) })
	t.Run("mismatches are refused by name", func(t *testing.T) { mismatches(t, factory(t)) })
	t.Run("corrupt bytes are refused", func(t *testing.T) { corruption(t, factory(t)) })
	t.Run("processing goes on while a snapshot is written", func(t *testing.T) { concurrentWrite(t, factory(t)) })
	t.Run("failed write can be repeated", func(t *testing.T) { failedWrite(t, factory(t)) })
}

// pair is a key type of two strings: its encoding must keep them apart.
type pair struct{ A, B string }

// Keys that are beginnings of each other, or empty, or hold zero bytes.
var strange = rapid.SampledFrom([]string{"", "a", "aa", "ab", "a\x00", "a\x00\x01", "\x00", "\xff", "prefix", "prefix-1", "prefix-2", "prefix-long-enough-1", "prefix-long-enough-2"})

func drawString(t *rapid.T) string {
	if rapid.Bool().Draw(t, "strange") {
		return strange.Draw(t, "key")
	}
	return fmt.Sprintf("key-%d", rapid.IntRange(0, 60).Draw(t, "key"))
}

func drawWord(t *rapid.T) uint64 {
	return rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Just(uint64(1)<<63)).Draw(t, "key")
}

func drawPair(t *rapid.T) pair { return pair{strange.Draw(t, "a"), strange.Draw(t, "b")} }

// deepValue is a value of which assignment is no copy.
type deepValue struct {
	Name string
	List []int64
	Map  map[string]int32
	Next *int64
}

func (v deepValue) clone() deepValue {
	v.List, v.Map = slices.Clone(v.List), maps.Clone(v.Map)
	if v.Next != nil {
		v.Next = new(*v.Next)
	}
	return v
}

func (v deepValue) equal(o deepValue) bool {
	return v.Name == o.Name && slices.Equal(v.List, o.List) && maps.Equal(v.Map, o.Map) &&
		(v.Next == nil) == (o.Next == nil) && (v.Next == nil || *v.Next == *o.Next)
}

// operator is the keyed state of one subtask with the suite's two states.
type operator[K comparable] struct {
	keyed *state.Keyed[K]
	flat  state.Value[int64]
	deep  state.Value[deepValue]
}

func open[K comparable](t rapid.TB, b statebackend.Backend, index, parallelism, maxParallelism int) *operator[K] {
	t.Helper()
	keyed, err := state.NewKeyed[K](state.Options{
		Operator: "op", Range: keygroup.RangeOf(index, parallelism, maxParallelism), MaxParallelism: maxParallelism, Backend: b,
	})
	must(t, err)
	o := &operator[K]{keyed: keyed}
	o.flat, err = state.NewValue[int64](keyed, "flat")
	must(t, err)
	o.deep, err = state.NewValue[deepValue](keyed, "deep")
	must(t, err)
	return o
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content is what the model holds: per state and key a value.
type content[K comparable] struct {
	flat map[K]int64
	deep map[K]deepValue
}

func newContent[K comparable]() content[K] {
	return content[K]{flat: map[K]int64{}, deep: map[K]deepValue{}}
}

func (c content[K]) clone() content[K] {
	d := content[K]{flat: maps.Clone(c.flat), deep: map[K]deepValue{}}
	for k, v := range c.deep {
		d.deep[k] = v.clone()
	}
	return d
}

// stored is a snapshot of one subtask.
type stored = statebackend.RestoredPart

func write(t rapid.TB, f statebackend.Frozen, r keygroup.Range) stored {
	t.Helper()
	var buf bytes.Buffer
	offsets, states, err := f.WriteSnapshot(&buf)
	must(t, err)
	if len(offsets) != r.Len()+1 || offsets[len(offsets)-1] != int64(buf.Len()) {
		t.Fatalf("%d offsets to %v for key groups %s in %d bytes", len(offsets), offsets[len(offsets)-1], r, buf.Len())
	}
	return stored{Range: r, Offsets: offsets, States: states, Data: buf.Bytes()}
}

// view is a freeze of all subtasks that is not written yet, and what it must hold.
type view[K comparable] struct {
	frozen      []statebackend.Frozen
	want        content[K]
	parallelism int
}

// machine is a job of some subtasks beside its model.
type machine[K comparable] struct {
	backend        statebackend.Backend
	draw           func(*rapid.T) K
	maxParallelism int
	parallelism    int
	subtasks       []*operator[K]
	model          content[K]
	views          []view[K]
	encoding       *keygroup.Encoding[K]
}

// viewsMax bounds the freezes alive at once, as max-concurrent-checkpoints does.
const viewsMax = 3

func modelRun[K comparable](t *testing.T, b statebackend.Backend, draw func(*rapid.T) K) {
	encoding, err := keygroup.NewEncoding[K]()
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		m := &machine[K]{backend: b, draw: draw, model: newContent[K](), encoding: encoding}
		m.maxParallelism = rapid.SampledFrom([]int{1, 2, 7, 128}).Draw(t, "max parallelism")
		m.start(t, nil)
		defer m.stop(t)
		t.Repeat(map[string]func(*rapid.T){
			"set flat":             func(t *rapid.T) { m.setFlat(t) },
			"add flat":             func(t *rapid.T) { m.addFlat(t) },
			"set deep":             func(t *rapid.T) { m.setDeep(t) },
			"change deep":          func(t *rapid.T) { m.changeDeep(t) },
			"change deep in place": func(t *rapid.T) { m.changeInPlace(t) },
			"clear":                func(t *rapid.T) { m.clear(t) },
			"stay at a key":        func(t *rapid.T) { m.stay(t) },
			"get":                  func(t *rapid.T) { m.get(t) },
			"freeze":               func(t *rapid.T) { m.freeze(t) },
			"write":                func(t *rapid.T) { m.write(t) },
			"rescale":              func(t *rapid.T) { m.rescale(t) },
			"":                     func(t *rapid.T) { m.countEntries(t) },
		})
		for len(m.views) > 0 {
			m.write(t)
		}
		m.verify(t, m.model)
	})
}

// start opens the subtasks at a random parallelism and restores them.
func (m *machine[K]) start(t *rapid.T, parts []stored) {
	m.parallelism = rapid.IntRange(1, min(m.maxParallelism, 4)).Draw(t, "parallelism")
	m.subtasks = openAll[K](t, m.backend, m.parallelism, m.maxParallelism, parts)
}

func openAll[K comparable](t rapid.TB, b statebackend.Backend, parallelism, maxParallelism int, parts []stored) []*operator[K] {
	t.Helper()
	var out []*operator[K]
	for i := range parallelism {
		o := open[K](t, b, i, parallelism, maxParallelism)
		must(t, o.keyed.Backend().Restore(parts))
		out = append(out, o)
	}
	return out
}

func (m *machine[K]) stop(t rapid.TB) {
	for _, v := range m.views {
		for _, f := range v.frozen {
			f.Release()
		}
	}
	m.views = nil
	for _, o := range m.subtasks {
		must(t, o.keyed.Backend().Close())
	}
}

// at makes key current in the subtask that owns it.
func (m *machine[K]) at(t rapid.TB, key K) *operator[K] {
	t.Helper()
	o := m.subtasks[m.owner(key)]
	must(t, o.keyed.SetCurrentKey(key))
	return o
}

func (m *machine[K]) owner(key K) int {
	g := keygroup.OfHash(m.encoding.Hash(&key), m.maxParallelism)
	return keygroup.OwnerOf(g, m.parallelism, m.maxParallelism)
}

func (m *machine[K]) setFlat(t *rapid.T) {
	key, v := m.draw(t), rapid.Int64().Draw(t, "value")
	must(t, m.at(t, key).flat.Set(v))
	m.model.flat[key] = v
}

func (m *machine[K]) addFlat(t *rapid.T) {
	key := m.draw(t)
	o := m.at(t, key)
	p, found, err := o.flat.Ref()
	must(t, err)
	want, ok := m.model.flat[key]
	if found != ok || *p != want {
		t.Fatalf("key %v refers to %d %v, want %d %v", key, *p, found, want, ok)
	}
	*p++
	m.model.flat[key] = want + 1
	m.expectFlat(t, o, key)
}

func drawDeep(t *rapid.T) deepValue {
	v := deepValue{
		Name: rapid.String().Draw(t, "name"), List: rapid.SliceOfN(rapid.Int64(), 0, 4).Draw(t, "list"),
		Map: rapid.MapOfN(rapid.SampledFrom([]string{"", "x", "y"}), rapid.Int32(), 0, 3).Draw(t, "map"),
	}
	if rapid.Bool().Draw(t, "next") {
		v.Next = new(rapid.Int64().Draw(t, "*next"))
	}
	return v
}

// change alters all memory that v shares.
func change(v *deepValue) {
	for i := range v.List {
		v.List[i]++
	}
	for k := range v.Map {
		v.Map[k]++
	}
	if v.Next != nil {
		*v.Next++
	}
	v.Name += "."
}

func (m *machine[K]) setDeep(t *rapid.T) {
	key, v := m.draw(t), drawDeep(t)
	must(t, m.at(t, key).deep.Set(v))
	m.model.deep[key] = v.clone()
}

// changeDeep is the read-change-write of a record: the caller changes the very
// memory that Get returned, and Sets it.
func (m *machine[K]) changeDeep(t *rapid.T) {
	key := m.draw(t)
	o := m.at(t, key)
	v, found, err := o.deep.Get()
	must(t, err)
	want, ok := m.model.deep[key]
	if found != ok || !v.equal(want) {
		t.Fatalf("key %v has %+v %v, want %+v %v", key, v, found, want, ok)
	}
	if !found {
		return
	}
	change(&v)
	must(t, o.deep.Set(v))
	if rapid.Bool().Draw(t, "change once more after set") {
		change(&v)
		must(t, o.deep.Set(v))
	}
	m.model.deep[key] = v.clone()
}

func (m *machine[K]) changeInPlace(t *rapid.T) {
	key := m.draw(t)
	o := m.at(t, key)
	p, found, err := o.deep.Ref()
	must(t, err)
	want, ok := m.model.deep[key]
	if found != ok || !p.equal(want) {
		t.Fatalf("key %v refers to %+v %v, want %+v %v", key, *p, found, want, ok)
	}
	change(p)
	m.model.deep[key] = p.clone()
}

func (m *machine[K]) clear(t *rapid.T) {
	key := m.draw(t)
	o := m.at(t, key)
	if rapid.Bool().Draw(t, "flat") {
		must(t, o.flat.Clear())
		delete(m.model.flat, key)
	} else {
		must(t, o.deep.Clear())
		delete(m.model.deep, key)
	}
	m.expectFlat(t, o, key)
}

func (m *machine[K]) get(t *rapid.T) {
	key := m.draw(t)
	m.expectFlat(t, m.at(t, key), key)
}

// stay does several things under one current key, with freezes between them:
// what a handle remembers of the key must not outlive them.
func (m *machine[K]) stay(t *rapid.T) {
	key := m.draw(t)
	o := m.at(t, key)
	for range rapid.IntRange(2, 5).Draw(t, "steps") {
		m.expectFlat(t, o, key)
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			m.freeze(t)
		case 1:
			must(t, o.flat.Clear())
			delete(m.model.flat, key)
		case 2:
			must(t, o.flat.Set(m.model.flat[key]+1))
			m.model.flat[key]++
		case 3:
			p, _, err := o.flat.Ref()
			must(t, err)
			*p += 2
			m.model.flat[key] += 2
		}
	}
	m.expectFlat(t, o, key)
}

func (m *machine[K]) expectFlat(t rapid.TB, o *operator[K], key K) {
	t.Helper()
	v, found, err := o.flat.Get()
	must(t, err)
	if want, ok := m.model.flat[key]; found != ok || v != want {
		t.Fatalf("key %v has %d %v, want %d %v", key, v, found, want, ok)
	}
}

func (m *machine[K]) countEntries(t *rapid.T) {
	var n int64
	for _, o := range m.subtasks {
		n += o.keyed.Backend().Stats().Entries
	}
	if want := len(m.model.flat) + len(m.model.deep); n != int64(want) {
		t.Fatalf("%d entries counted, want %d", n, want)
	}
}

func (m *machine[K]) freeze(t *rapid.T) {
	if len(m.views) == viewsMax {
		return
	}
	v := view[K]{want: m.model.clone(), parallelism: m.parallelism}
	for _, o := range m.subtasks {
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		v.frozen = append(v.frozen, f)
	}
	m.views = append(m.views, v)
}

// write writes a random view, now that more has changed, and looks at what a
// job restored from it has.
func (m *machine[K]) write(t *rapid.T) []stored {
	if len(m.views) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(m.views)-1).Draw(t, "view")
	v := m.views[i]
	var parts []stored
	for j, f := range v.frozen {
		parts = append(parts, write(t, f, keygroup.RangeOf(j, v.parallelism, m.maxParallelism)))
		f.Release()
	}
	m.views = slices.Delete(m.views, i, i+1)
	restored := &machine[K]{backend: m.backend, maxParallelism: m.maxParallelism, encoding: m.encoding}
	restored.start(t, parts)
	restored.verify(t, v.want)
	restored.stop(t)
	return parts
}

// rescale goes on from a snapshot of now at another parallelism.
func (m *machine[K]) rescale(t *rapid.T) {
	var parts []stored
	for i, o := range m.subtasks {
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		must(t, o.keyed.Backend().Close()) // a view outlives its state
		parts = append(parts, write(t, f, keygroup.RangeOf(i, m.parallelism, m.maxParallelism)))
		f.Release()
	}
	m.start(t, parts)
}

// verify compares everything that the subtasks hold with want: every key is
// there with its value, and no more are counted.
func (m *machine[K]) verify(t rapid.TB, want content[K]) {
	t.Helper()
	var n int64
	for _, o := range m.subtasks {
		n += o.keyed.Backend().Stats().Entries
	}
	if n != int64(len(want.flat)+len(want.deep)) {
		t.Fatalf("%d entries, want %d", n, len(want.flat)+len(want.deep))
	}
	for key, w := range want.flat {
		v, found, err := m.at(t, key).flat.Get()
		must(t, err)
		if !found || v != w {
			t.Fatalf("key %v has %d %v, want %d", key, v, found, w)
		}
	}
	for key, w := range want.deep {
		v, found, err := m.at(t, key).deep.Get()
		must(t, err)
		if !found || !v.equal(w) {
			t.Fatalf("key %v has %+v %v, want %+v", key, v, found, w)
		}
	}
}

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
		"offset too far":       with(func(p *stored) { p.Offsets[128] += 1 }),
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
