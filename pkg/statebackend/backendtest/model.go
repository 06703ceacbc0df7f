package backendtest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

// view is a freeze of all subtasks that is not written yet, and what it must hold.
type view[K comparable] struct {
	frozen []statebackend.Frozen
	want   content[K]
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
		releaseAll(v.frozen)
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
		n += count(t, o.keyed.Backend())
	}
	if want := len(m.model.flat) + len(m.model.deep); n != int64(want) {
		t.Fatalf("%d entries counted, want %d", n, want)
	}
}

func (m *machine[K]) freeze(t *rapid.T) {
	if len(m.views) < viewsMax {
		m.views = append(m.views, view[K]{want: m.model.clone(), frozen: m.freezeAll(t)})
	}
}

func (m *machine[K]) freezeAll(t *rapid.T) (frozen []statebackend.Frozen) {
	for _, o := range m.subtasks {
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		frozen = append(frozen, f)
	}
	return frozen
}

// write writes a random view, now that more has changed, and looks at what a
// job restored from it has.
func (m *machine[K]) write(t *rapid.T) {
	if len(m.views) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.views)-1).Draw(t, "view")
	v := m.views[i]
	m.views = slices.Delete(m.views, i, i+1)
	defer releaseAll(v.frozen)
	restored := &machine[K]{backend: m.backend, maxParallelism: m.maxParallelism, encoding: m.encoding}
	restored.start(t, takeAll(t, m.backend, v.frozen, m.maxParallelism))
	restored.verify(t, v.want)
	restored.stop(t)
}

// rescale goes on from a snapshot of now at another parallelism.
func (m *machine[K]) rescale(t *rapid.T) {
	frozen := m.freezeAll(t)
	defer releaseAll(frozen)
	for _, o := range m.subtasks {
		must(t, o.keyed.Backend().Close()) // a view outlives its state
	}
	m.start(t, takeAll(t, m.backend, frozen, m.maxParallelism))
}

// verify compares everything that the subtasks hold with want: every key is
// there with its value, and no more are counted.
func (m *machine[K]) verify(t rapid.TB, want content[K]) {
	t.Helper()
	var n int64
	for _, o := range m.subtasks {
		n += count(t, o.keyed.Backend())
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
