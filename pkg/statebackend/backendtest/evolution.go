package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// The types that deepValue was, one after the other. A name that a version has
// dropped does not come back: entries that were written before the drop and
// never again since would still have it.
type (
	firstVersion struct {
		Name   string
		List   []int32
		Labels map[string]int32
	}
	// wideVersion has the fields of the first in another order, one of them
	// wider, one under another name, and a new one.
	wideVersion struct {
		Next   *int64
		List   []int64
		Title  string `weir:"title,alias=Name"`
		Labels map[string]int32
	}
	// leanVersion has lost one.
	leanVersion struct {
		Title string `weir:"title,alias=Name"`
		Next  *int64
		List  []int64
	}
	// lastVersion has a new one again, first, and one that is renamed again.
	lastVersion struct {
		Map   map[string]int32
		Title string  `weir:"heading,alias=title,alias=Name"`
		List  []int64 `weir:"items,alias=List"`
		Next  *int64
	}
)

// versioned stores a deepValue as an S, which to the backend is the type of
// the state. That the states are all of one type keeps the suite small.
type versioned[S any] struct {
	stored codec.Codec[S]
	to     func(v *deepValue) S
	from   func(s *S) deepValue
}

func newVersion[S any](t testing.TB, to func(v *deepValue) S, from func(s *S) deepValue) codec.Codec[deepValue] {
	c, err := avro.For[S]()
	must(t, err)
	return versioned[S]{stored: c, to: to, from: from}
}

// Name implements codec.Codec.
func (c versioned[S]) Name() string { return c.stored.Name() }

// Schema implements codec.Codec.
func (c versioned[S]) Schema() string { return c.stored.Schema() }

// Append implements codec.Codec.
func (c versioned[S]) Append(dst []byte, v *deepValue) []byte {
	s := c.to(v)
	return c.stored.Append(dst, &s)
}

// Decode implements codec.Codec.
func (c versioned[S]) Decode(src []byte, v *deepValue) (int, error) {
	var s S
	n, err := c.stored.Decode(src, &s)
	*v = c.from(&s)
	return n, err
}

// Clone implements codec.Codec.
func (versioned[S]) Clone(dst, src *deepValue) { *dst = src.clone() }

// Flat implements codec.Codec.
func (versioned[S]) Flat() bool { return false }

// ForSchema implements codec.Migrating.
func (c versioned[S]) ForSchema(name, schema string) (codec.Codec[deepValue], error) {
	var err error
	c.stored, err = codec.ForSchema(c.stored, name, schema)
	return c, err
}

func versions(t testing.TB) []codec.Codec[deepValue] {
	return []codec.Codec[deepValue]{
		newVersion(t, func(v *deepValue) firstVersion {
			s := firstVersion{Name: v.Name, Labels: v.Map}
			for _, n := range v.List {
				s.List = append(s.List, int32(n))
			}
			return s
		}, func(s *firstVersion) deepValue {
			v := deepValue{Name: s.Name, Map: s.Labels}
			for _, n := range s.List {
				v.List = append(v.List, int64(n))
			}
			return v
		}),
		newVersion(t, func(v *deepValue) wideVersion {
			return wideVersion{Next: v.Next, List: v.List, Title: v.Name, Labels: v.Map}
		}, func(s *wideVersion) deepValue {
			return deepValue{Name: s.Title, List: s.List, Map: s.Labels, Next: s.Next}
		}),
		newVersion(t, func(v *deepValue) leanVersion {
			return leanVersion{Title: v.Name, Next: v.Next, List: v.List}
		}, func(s *leanVersion) deepValue { return deepValue{Name: s.Title, List: s.List, Next: s.Next} }),
		newVersion(t, func(v *deepValue) lastVersion {
			return lastVersion{Map: v.Map, Title: v.Name, List: v.List, Next: v.Next}
		}, func(s *lastVersion) deepValue {
			return deepValue{Name: s.Title, List: s.List, Map: s.Map, Next: s.Next}
		}),
	}
}

// leanFrom is the version from which on nothing is left of an older one's map.
const leanFrom = 2

// asVersion is what a version stores of v.
func asVersion(version int, v deepValue) deepValue {
	v = v.clone()
	switch version {
	case 0:
		for i := range v.List {
			v.List[i] = int64(int32(v.List[i]))
		}
		v.Next = nil
	case leanFrom:
		v.Map = nil
	}
	return v
}

// evolving is one subtask with states whose type changes.
type evolving struct {
	keyed *state.Keyed[string]
	value state.Value[deepValue]
	list  state.List[deepValue]
	users state.Map[mapKey, deepValue]
}

// evolved is what the model holds of one key.
type evolved struct {
	value *deepValue
	list  []deepValue
	users map[mapKey]deepValue
}

// migrate is what becomes of it when the type is that of another version.
func (h *evolved) migrate(from, to int) {
	if from >= leanFrom || to < leanFrom {
		return
	}
	if h.value != nil {
		h.value.Map = nil
	}
	for i := range h.list {
		h.list[i].Map = nil
	}
	for u, v := range h.users {
		v.Map = nil
		h.users[u] = v
	}
}

// evolvingMachine is a job that is restored into newer versions of itself,
// beside its model.
type evolvingMachine struct {
	backend  statebackend.Backend
	encoding *keygroup.Encoding[string]
	versions []codec.Codec[deepValue]
	version  int
	subtasks []*evolving
	model    map[string]*evolved
}

const evolvingGroups = 8

func (m *evolvingMachine) start(t *rapid.T, parts []stored) {
	m.subtasks = nil
	parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
	// Nothing expires, the clock stands still: only what is stored differs.
	var expires []state.Option
	if rapid.Bool().Draw(t, "with time-to-live") {
		expires = []state.Option{state.WithTTL(time.Hour)}
	}
	as := state.WithCodec(m.versions[m.version])
	for i := range parallelism {
		keyed, err := state.NewKeyed[string](state.Options{
			Operator: "op", Range: keygroup.RangeOf(i, parallelism, evolvingGroups), MaxParallelism: evolvingGroups,
			Backend: m.backend, Now: func() time.Time { return time.UnixMilli(1_000_000) },
		})
		must(t, err)
		closing(t, keyed.Backend())
		o := &evolving{keyed: keyed}
		o.value, err = state.NewValue[deepValue](keyed, "value", append(expires, as)...)
		must(t, err)
		o.list, err = state.NewList[deepValue](keyed, "list", as)
		must(t, err)
		o.users, err = state.NewMap[mapKey, deepValue](keyed, "users", as)
		must(t, err)
		must(t, keyed.Backend().Restore(parts))
		m.subtasks = append(m.subtasks, o)
	}
}

// at makes key current in the subtask that owns it.
func (m *evolvingMachine) at(t rapid.TB, key string) *evolving {
	g := keygroup.OfHash(m.encoding.Hash(&key), evolvingGroups)
	o := m.subtasks[keygroup.OwnerOf(g, len(m.subtasks), evolvingGroups)]
	must(t, o.keyed.SetCurrentKey(key))
	return o
}

func (m *evolvingMachine) change(t *rapid.T) {
	key := fmt.Sprint("key-", rapid.IntRange(0, 12).Draw(t, "key"))
	h := m.model[key]
	if h == nil {
		h = &evolved{users: map[mapKey]deepValue{}}
		m.model[key] = h
	}
	o := m.at(t, key)
	v := asVersion(m.version, drawDeep(t))
	u := mapKey{N: rapid.Int16Range(0, 3).Draw(t, "user key")}
	switch rapid.SampledFrom([]string{"set", "rename", "clear", "add", "set list", "user", "rename user", "remove"}).Draw(t, "how") {
	case "set":
		h.value = new(v.clone())
		must(t, o.value.Set(v))
	case "rename":
		// What is there stays as it was stored, but for the name.
		p, found, err := o.value.Ref()
		must(t, err)
		if found != (h.value != nil) || found && !p.equal(*h.value) {
			t.Fatalf("key %q refers to %+v %v, want %+v", key, *p, found, h.value)
		}
		if !found {
			h.value = &deepValue{}
		}
		p.Name, h.value.Name = v.Name, v.Name
	case "clear":
		h.value = nil
		must(t, o.value.Clear())
	case "add":
		h.list = append(h.list, v.clone())
		must(t, o.list.Add(v))
	case "set list":
		h.list = []deepValue{v.clone()}
		must(t, o.list.Set([]deepValue{v}))
	case "user":
		h.users[u] = v.clone()
		must(t, o.users.Set(u, v))
	case "rename user":
		p, _, err := o.users.Ref(u)
		must(t, err)
		p.Name = v.Name
		w := h.users[u]
		w.Name = v.Name
		h.users[u] = w
	case "remove":
		delete(h.users, u)
		must(t, o.users.Remove(u))
	}
}

// restart goes on from a snapshot of now as a newer version or as the same,
// at another parallelism.
func (m *evolvingMachine) restart(t *rapid.T) {
	var keyed []statebackend.KeyedState
	for _, o := range m.subtasks {
		keyed = append(keyed, o.keyed.Backend())
	}
	frozen := freezeAll(t, keyed)
	defer releaseAll(frozen)
	parts := takeAll(t, m.backend, frozen, evolvingGroups)
	to := min(len(m.versions)-1, m.version+rapid.SampledFrom([]int{0, 0, 1, 1, 2}).Draw(t, "versions on"))
	for _, h := range m.model {
		h.migrate(m.version, to)
	}
	m.version = to
	m.start(t, parts)
}

func (m *evolvingMachine) verify(t *rapid.T) {
	for key, h := range m.model {
		o := m.at(t, key)
		v, found, err := o.value.Get()
		must(t, err)
		if found != (h.value != nil) || found && !v.equal(*h.value) {
			t.Fatalf("version %d: key %q has %+v %v, want %+v", m.version, key, v, found, h.value)
		}
		list, err := o.list.Get()
		must(t, err)
		if !slices.EqualFunc(list, h.list, deepValue.equal) {
			t.Fatalf("version %d: key %q has the list %+v, want %+v", m.version, key, list, h.list)
		}
		var users []mapKey
		must(t, o.users.Each(func(u mapKey, v deepValue) error {
			if w, ok := h.users[u]; !ok || !v.equal(w) {
				t.Fatalf("version %d: key %q has %+v for %+v, want %+v %v", m.version, key, v, u, w, ok)
			}
			users = append(users, u)
			return nil
		}))
		if len(users) != len(h.users) || !slices.IsSortedFunc(users, func(a, b mapKey) int { return cmp.Compare(a.N, b.N) }) {
			t.Fatalf("version %d: key %q has user keys %+v, want %+v", m.version, key, users, h.users)
		}
	}
}

// evolutionRun: a state whose type changes is the one that it was, in the new
// type, whichever versions of the program its entries are of, however often
// and in whatever form it was stored in between.
func evolutionRun(t *testing.T, b statebackend.Backend) {
	encoding, err := keygroup.NewEncoding[string]()
	must(t, err)
	versions := versions(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &evolvingMachine{backend: b, encoding: encoding, versions: versions, model: map[string]*evolved{}}
		m.start(t, nil)
		t.Repeat(map[string]func(*rapid.T){
			"change":       m.change,
			"change again": m.change,
			"change more":  m.change,
			"restart":      m.restart,
			"read":         m.verify,
			"":             func(*rapid.T) {},
		})
		m.verify(t)
	})
}
