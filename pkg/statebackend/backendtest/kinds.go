package backendtest

import (
	"bytes"
	"cmp"
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

// kinds is the keyed state of one subtask with a state of every kind.
type kinds[K comparable] struct {
	keyed    *state.Keyed[K]
	value    state.Value[int64]
	flatList state.List[int64]
	deepList state.List[deepValue]
	flatMap  state.Map[string, int64]
	deepMap  state.Map[mapKey, deepValue]
	longest  *state.Reducing[deepValue]
	mean     *state.Aggregating[int64, total, float64]
}

// mapKey is a user key of several fields.
type mapKey struct {
	N int16
	S string
}

// total is the accumulator of average.
type total struct{ Sum, Count int64 }

type average struct{}

// Start implements state.Aggregator.
func (average) Start() total { return total{} }

// Add implements state.Aggregator.
func (average) Add(acc *total, v int64) error {
	acc.Sum += v
	acc.Count++
	return nil
}

// Result implements state.Aggregator.
func (average) Result(acc *total) (float64, error) { return acc.mean(), nil }

func (t total) mean() float64 { return float64(t.Sum) / float64(t.Count) }

// longer keeps the value with the longer list, changed in place.
func longer(sofar, v deepValue) (deepValue, error) {
	if len(v.List) > len(sofar.List) {
		return v, nil
	}
	change(&sofar)
	return sofar, nil
}

func openKinds[K comparable](t rapid.TB, b statebackend.Backend, index, parallelism, maxParallelism int) *kinds[K] {
	t.Helper()
	keyed, err := state.NewKeyed[K](state.Options{
		Operator: "op", Range: keygroup.RangeOf(index, parallelism, maxParallelism), MaxParallelism: maxParallelism, Backend: b,
	})
	must(t, err)
	closing(t, keyed.Backend())
	o := &kinds[K]{keyed: keyed}
	o.value, err = state.NewValue[int64](keyed, "value")
	must(t, err)
	o.flatList, err = state.NewList[int64](keyed, "flat list")
	must(t, err)
	o.deepList, err = state.NewList[deepValue](keyed, "deep list")
	must(t, err)
	o.flatMap, err = state.NewMap[string, int64](keyed, "flat map")
	must(t, err)
	o.deepMap, err = state.NewMap[mapKey, deepValue](keyed, "deep map")
	must(t, err)
	o.longest, err = state.NewReducing(keyed, "longest", longer)
	must(t, err)
	o.mean, err = state.NewAggregating(keyed, "mean", average{})
	must(t, err)
	return o
}

// held is what the model holds of one key.
type held struct {
	value    *int64
	flatList []int64
	deepList []deepValue
	flatMap  map[string]int64
	deepMap  map[mapKey]deepValue
	longest  *deepValue
	mean     total
}

func cloneAll(l []deepValue) []deepValue {
	var out []deepValue
	for _, v := range l {
		out = append(out, v.clone())
	}
	return out
}

func (h *held) clone() *held {
	c := &held{flatList: slices.Clone(h.flatList), deepList: cloneAll(h.deepList), flatMap: maps.Clone(h.flatMap), deepMap: map[mapKey]deepValue{}, mean: h.mean}
	if h.value != nil {
		c.value = new(*h.value)
	}
	for k, v := range h.deepMap {
		c.deepMap[k] = v.clone()
	}
	if h.longest != nil {
		c.longest = new(h.longest.clone())
	}
	return c
}

func newHeld() *held { return &held{flatMap: map[string]int64{}, deepMap: map[mapKey]deepValue{}} }

// expect compares all states of the current key with the model.
func (o *kinds[K]) expect(t rapid.TB, h *held) {
	t.Helper()
	v, found, err := o.value.Get()
	must(t, err)
	if found != (h.value != nil) || found && v != *h.value {
		t.Fatalf("value is %d %v, want %v", v, found, h.value)
	}
	flat, err := o.flatList.Get()
	must(t, err)
	if !slices.Equal(flat, h.flatList) {
		t.Fatalf("list is %v, want %v", flat, h.flatList)
	}
	deep, err := o.deepList.Get()
	must(t, err)
	if !slices.EqualFunc(deep, h.deepList, deepValue.equal) {
		t.Fatalf("list is %+v, want %+v", deep, h.deepList)
	}
	o.expectMaps(t, h)
	longest, found, err := o.longest.Get()
	must(t, err)
	if found != (h.longest != nil) || found && !longest.equal(*h.longest) {
		t.Fatalf("reduced to %+v %v, want %+v", longest, found, h.longest)
	}
	mean, found, err := o.mean.Get()
	must(t, err)
	if found != (h.mean.Count > 0) || found && mean != h.mean.mean() {
		t.Fatalf("mean is %v %v, want that of %+v", mean, found, h.mean)
	}
}

func (o *kinds[K]) expectMaps(t rapid.TB, h *held) {
	t.Helper()
	var users []string
	must(t, o.flatMap.Each(func(u string, v int64) error {
		if w, ok := h.flatMap[u]; !ok || v != w {
			t.Fatalf("user key %q has %d, want %d %v", u, v, w, ok)
		}
		users = append(users, u)
		return nil
	}))
	if !slices.Equal(users, slices.Sorted(maps.Keys(h.flatMap))) {
		t.Fatalf("user keys in the order %q, want those of %v", users, h.flatMap)
	}
	n, err := o.flatMap.Len()
	must(t, err)
	var deep []mapKey
	must(t, o.deepMap.Each(func(u mapKey, v deepValue) error {
		if w, ok := h.deepMap[u]; !ok || !v.equal(w) {
			t.Fatalf("user key %+v has %+v, want %+v %v", u, v, w, ok)
		}
		deep = append(deep, u)
		return nil
	}))
	order := func(a, b mapKey) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.S, b.S)) }
	if n != len(h.flatMap) || !slices.Equal(deep, slices.SortedFunc(maps.Keys(h.deepMap), order)) {
		t.Fatalf("%d user keys, want %d; user keys %+v, want those of %v", n, len(h.flatMap), deep, h.deepMap)
	}
}

// kindsMachine is a job of some subtasks beside its model.
type kindsMachine[K comparable] struct {
	backend        statebackend.Backend
	encoding       *keygroup.Encoding[K]
	maxParallelism int
	subtasks       []*kinds[K]
	model          map[K]*held
	views          []kindsView[K]
}

type kindsView[K comparable] struct {
	frozen []statebackend.Frozen
	want   map[K]*held
}

func kindsRun[K comparable](t *testing.T, b statebackend.Backend, draw func(*rapid.T) K) {
	encoding, err := keygroup.NewEncoding[K]()
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		m := &kindsMachine[K]{backend: b, encoding: encoding, model: map[K]*held{}}
		m.maxParallelism = rapid.SampledFrom([]int{1, 5, 128}).Draw(t, "max parallelism")
		m.subtasks = m.start(t, nil)
		defer func() {
			for _, v := range m.views {
				releaseAll(v.frozen)
			}
		}()
		// Few keys and many steps with each: what matters is what happens to
		// one key between two freezes.
		keys := rapid.SliceOfNDistinct(rapid.Custom(draw), 1, 4, rapid.ID[K]).Draw(t, "keys")
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				o := at(t, m.subtasks, m.encoding, m.maxParallelism, key)
				h := m.model[key]
				if h == nil {
					h = newHeld()
					m.model[key] = h
				}
				for range rapid.IntRange(1, 6).Draw(t, "changes") {
					o.change(t, h)
				}
				o.expect(t, h)
			},
			"freeze": func(t *rapid.T) {
				if len(m.views) < viewsMax {
					m.views = append(m.views, m.freeze(t))
				}
			},
			"write": func(t *rapid.T) {
				if len(m.views) > 0 {
					i := rapid.IntRange(0, len(m.views)-1).Draw(t, "view")
					v := m.views[i]
					m.views = slices.Delete(m.views, i, i+1)
					defer releaseAll(v.frozen)
					m.verify(t, m.start(t, takeAll(t, m.backend, v.frozen, m.maxParallelism)), v.want)
				}
			},
			"rescale": func(t *rapid.T) {
				frozen := m.freeze(t).frozen
				defer releaseAll(frozen)
				m.subtasks = m.start(t, takeAll(t, m.backend, frozen, m.maxParallelism))
			},
			"": func(*rapid.T) {},
		})
		m.verify(t, m.subtasks, m.model)
	})
}

// at makes key current in the subtask that owns it.
func at[K comparable](t rapid.TB, subtasks []*kinds[K], encoding *keygroup.Encoding[K], maxParallelism int, key K) *kinds[K] {
	t.Helper()
	g := keygroup.OfHash(encoding.Hash(&key), maxParallelism)
	o := subtasks[keygroup.OwnerOf(g, len(subtasks), maxParallelism)]
	must(t, o.keyed.SetCurrentKey(key))
	return o
}

func (m *kindsMachine[K]) start(t *rapid.T, parts []stored) []*kinds[K] {
	parallelism := rapid.IntRange(1, min(m.maxParallelism, 3)).Draw(t, "parallelism")
	var out []*kinds[K]
	for i := range parallelism {
		o := openKinds[K](t, m.backend, i, parallelism, m.maxParallelism)
		must(t, o.keyed.Backend().Restore(parts))
		out = append(out, o)
	}
	return out
}

func (m *kindsMachine[K]) freeze(t *rapid.T) kindsView[K] {
	v := kindsView[K]{want: map[K]*held{}}
	for k, h := range m.model {
		v.want[k] = h.clone()
	}
	for _, o := range m.subtasks {
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		v.frozen = append(v.frozen, f)
	}
	return v
}

func (m *kindsMachine[K]) verify(t *rapid.T, subtasks []*kinds[K], want map[K]*held) {
	t.Helper()
	for key, h := range want {
		at(t, subtasks, m.encoding, m.maxParallelism, key).expect(t, h)
	}
}

// change makes one random change to the states of the current key.
func (o *kinds[K]) change(t *rapid.T, h *held) {
	switch rapid.SampledFrom([]string{"value", "list", "list", "deep list", "deep list", "map", "map", "deep map", "deep map", "reduce", "aggregate", "clear"}).Draw(t, "state") {
	case "value":
		h.value = new(rapid.Int64().Draw(t, "value"))
		must(t, o.value.Set(*h.value))
	case "list":
		o.changeFlatList(t, h)
	case "deep list":
		o.changeDeepList(t, h)
	case "map":
		o.changeFlatMap(t, h)
	case "deep map":
		o.changeDeepMap(t, h)
	case "reduce":
		v := drawDeep(t)
		if h.longest == nil {
			h.longest = new(v.clone())
		} else {
			h.longest = new(mustReduce(t, h.longest.clone(), v.clone()))
		}
		must(t, o.longest.Add(v))
	case "aggregate":
		v := rapid.Int64Range(-1000, 1000).Draw(t, "value")
		must(t, errors.Join(average{}.Add(&h.mean, v), o.mean.Add(v)))
	case "clear":
		must(t, errors.Join(o.value.Clear(), o.flatList.Clear(), o.deepList.Clear(), o.flatMap.Clear(), o.deepMap.Clear(), o.longest.Clear(), o.mean.Clear()))
		*h = *newHeld()
	}
}

func mustReduce(t rapid.TB, a, b deepValue) deepValue {
	v, err := longer(a, b)
	must(t, err)
	return v.clone()
}

func (o *kinds[K]) changeFlatList(t *rapid.T, h *held) {
	v := rapid.SliceOfN(rapid.Int64(), 0, 5).Draw(t, "elements")
	switch rapid.SampledFrom([]string{"add", "add all", "set", "change", "append to what get returned"}).Draw(t, "how") {
	case "add":
		must(t, o.flatList.Add(int64(len(v))))
		h.flatList = append(h.flatList, int64(len(v)))
	case "add all":
		must(t, o.flatList.AddAll(slices.Clone(v)))
		h.flatList = append(h.flatList, v...)
	case "set":
		must(t, o.flatList.Set(slices.Clone(v)))
		h.flatList = slices.Clone(v)
	case "change":
		got, err := o.flatList.Get()
		must(t, err)
		for i := range got {
			got[i]++
			h.flatList[i]++
		}
		must(t, o.flatList.Set(got))
	case "append to what get returned":
		got, err := o.flatList.Get()
		must(t, err)
		got = append(got, 5)
		must(t, o.flatList.Add(6)) // does not overwrite the 5
		must(t, o.flatList.Set(got))
		h.flatList = append(h.flatList, 5)
	}
}

func (o *kinds[K]) changeDeepList(t *rapid.T, h *held) {
	switch rapid.SampledFrom([]string{"add", "set", "change", "change in place"}).Draw(t, "how") {
	case "add":
		v := drawDeep(t)
		h.deepList = append(h.deepList, v.clone())
		must(t, o.deepList.Add(v))
	case "set":
		v := []deepValue{drawDeep(t), drawDeep(t)}
		h.deepList = cloneAll(v)
		must(t, o.deepList.Set(v))
	case "change", "change in place":
		got, err := o.deepList.Get()
		must(t, err)
		for i := range got {
			change(&got[i])
			change(&h.deepList[i])
		}
		must(t, o.deepList.Set(got))
	}
}

// Enough user keys for several leaves of whatever holds them.
func drawUser(t *rapid.T) string {
	return rapid.OneOf(strange, rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("u", rapid.IntRange(0, 400).Draw(t, "user")) })).Draw(t, "user key")
}

func (o *kinds[K]) changeFlatMap(t *rapid.T, h *held) {
	switch rapid.SampledFrom([]string{"set", "add", "remove", "fill", "thin out"}).Draw(t, "how") {
	case "set":
		u, v := drawUser(t), rapid.Int64().Draw(t, "value")
		must(t, o.flatMap.Set(u, v))
		h.flatMap[u] = v
	case "add":
		u := drawUser(t)
		p, found, err := o.flatMap.Ref(u)
		must(t, err)
		if w, ok := h.flatMap[u]; found != ok || *p != w {
			t.Fatalf("user key %q refers to %d %v, want %d %v", u, *p, found, w, ok)
		}
		*p++
		h.flatMap[u]++
	case "remove":
		u := drawUser(t)
		must(t, o.flatMap.Remove(u))
		delete(h.flatMap, u)
		if v, found, err := o.flatMap.Get(u); err != nil || found {
			t.Fatalf("removed user key %q has %d %v %v", u, v, found, err)
		}
	case "fill":
		from, step := rapid.IntRange(0, 300).Draw(t, "from"), rapid.SampledFrom([]int{1, 7, -1}).Draw(t, "step")
		for i := range 100 {
			u := fmt.Sprint("u", from+i*step)
			must(t, o.flatMap.Set(u, int64(i)))
			h.flatMap[u] = int64(i)
		}
	case "thin out":
		// Removed and added while passing over it.
		keep := rapid.Int64Range(2, 20).Draw(t, "keep")
		must(t, o.flatMap.Each(func(u string, v int64) error {
			if v%keep == 0 || strings.HasSuffix(u, "+") {
				return nil
			}
			delete(h.flatMap, u)
			if v == 5 {
				h.flatMap[u+"+"] = v
				return errors.Join(o.flatMap.Remove(u), o.flatMap.Set(u+"+", v))
			}
			return o.flatMap.Remove(u)
		}))
	}
}

func (o *kinds[K]) changeDeepMap(t *rapid.T, h *held) {
	u := mapKey{N: rapid.Int16Range(-9, 9).Draw(t, "n"), S: strange.Draw(t, "s")}
	switch rapid.SampledFrom([]string{"set", "change", "change in place", "remove", "change all"}).Draw(t, "how") {
	case "set":
		v := drawDeep(t)
		h.deepMap[u] = v.clone()
		must(t, o.deepMap.Set(u, v))
	case "change":
		v, found, err := o.deepMap.Get(u)
		must(t, err)
		if found {
			change(&v)
			w := h.deepMap[u]
			change(&w)
			h.deepMap[u] = w
			must(t, o.deepMap.Set(u, v))
		}
	case "change in place":
		p, _, err := o.deepMap.Ref(u)
		must(t, err)
		change(p)
		h.deepMap[u] = p.clone()
	case "remove":
		must(t, o.deepMap.Remove(u))
		delete(h.deepMap, u)
	case "change all":
		must(t, o.deepMap.Each(func(u mapKey, v deepValue) error {
			change(&v)
			h.deepMap[u] = v.clone()
			return o.deepMap.Set(u, v)
		}))
	}
}

// kindMismatches: no kind is taken for another, nor one type of user key.
func kindMismatches(t *testing.T, b statebackend.Backend) {
	open := func(register func(k *state.Keyed[string]) error) *state.Keyed[string] {
		k, err := state.NewKeyed[string](state.Options{Operator: "op", Range: keygroup.RangeOf(0, 1, 128), MaxParallelism: 128, Backend: b})
		must(t, err)
		must(t, register(k))
		return k
	}
	value := func(k *state.Keyed[string]) error { _, err := state.NewValue[int64](k, "s"); return err }
	list := func(k *state.Keyed[string]) error { _, err := state.NewList[int64](k, "s"); return err }
	byString := func(k *state.Keyed[string]) error { _, err := state.NewMap[string, int64](k, "s"); return err }
	byNumber := func(k *state.Keyed[string]) error { _, err := state.NewMap[int32, int64](k, "s"); return err }
	reducing := func(k *state.Keyed[string]) error {
		_, err := state.NewReducing(k, "s", func(a, b int64) (int64, error) { return a + b, nil })
		return err
	}
	for _, c := range []struct {
		was, is func(k *state.Keyed[string]) error
		words   []string
	}{
		{value, list, []string{"value", "list"}},
		{list, reducing, []string{"list", "reducing"}},
		{byString, byNumber, []string{"string", "int32"}},
	} {
		from := open(c.was)
		must(t, from.Backend().Restore(nil))
		f, err := from.Backend().Freeze()
		must(t, err)
		p := write(t, f, keygroup.Range{First: 0, Last: 127})
		f.Release()
		expectError(t, open(c.is).Backend().Restore([]stored{p}), append(c.words, `"op"`, `"s"`)...)
	}
	k := open(value)
	_, err := state.NewMap[float64, int64](k, "m")
	expectError(t, err, `"op"`, `"m"`, "float64")
	_, err = state.NewReducing[int64](k, "r", nil)
	expectError(t, err, `"op"`, `"r"`, "nil")
	must(t, k.Backend().Restore(nil))
	_, err = state.NewList[int64](k, "late")
	expectError(t, err, `"op"`, `"late"`, "opened")
}

// damagedKinds: damage of stored bytes must not panic nor allocate without bound.
func damagedKinds(t *testing.T, b statebackend.Backend) {
	o := openKinds[string](t, b, 0, 1, 1)
	must(t, o.keyed.Backend().Restore(nil))
	fillKinds(t, o, 0)
	f, err := o.keyed.Backend().Freeze()
	must(t, err)
	p := write(t, f, keygroup.Range{})
	f.Release()
	rapid.Check(t, func(t *rapid.T) {
		q := p
		q.Data = slices.Clone(p.Data)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			q.Data[rapid.IntRange(0, len(q.Data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		o := openKinds[string](t, b, 0, 1, 1)
		_ = o.keyed.Backend().Restore([]stored{q})
		must(t, o.keyed.Backend().Close())
	})
	must(t, openKinds[string](t, b, 0, 1, 1).keyed.Backend().Restore([]stored{p}))
}

// fillKinds changes all states of some keys, each time to something else.
func fillKinds(t *testing.T, o *kinds[string], round int) {
	for key := range 5 {
		must(t, o.keyed.SetCurrentKey(fmt.Sprint("key-", key)))
		must(t, o.value.Set(int64(round)))
		must(t, o.flatList.Add(int64(round)))
		must(t, o.deepList.Add(deepValue{Name: "n", List: []int64{int64(round)}}))
		got, err := o.deepList.Get()
		must(t, err)
		change(&got[0])
		for i := range 150 {
			p, _, err := o.flatMap.Ref(fmt.Sprint("u", i))
			must(t, err)
			*p++
			must(t, o.deepMap.Set(mapKey{N: int16(i)}, deepValue{List: []int64{int64(round)}}))
		}
		must(t, o.deepMap.Each(func(u mapKey, v deepValue) error {
			change(&v)
			return nil
		}))
		must(t, o.longest.Add(deepValue{List: []int64{1}}))
		must(t, o.mean.Add(int64(round)))
	}
}

// kindsConcurrently writes snapshots on other goroutines while every kind of
// state changes: for the race detector.
func kindsConcurrently(t *testing.T, b statebackend.Backend) {
	o := openKinds[string](t, b, 0, 1, 128)
	must(t, o.keyed.Backend().Restore(nil))
	const rounds = 6
	var results [rounds]chan []byte
	for round := range rounds {
		fillKinds(t, o, round)
		f, err := o.keyed.Backend().Freeze()
		must(t, err)
		done := make(chan []byte, 1)
		results[round] = done
		// Waited for below, through its result.
		go func() {
			defer f.Release()
			var buf bytes.Buffer
			if _, _, err := f.WriteSnapshot(&buf); err != nil {
				t.Error(err)
			}
			done <- buf.Bytes()
		}()
	}
	again := openKinds[string](t, b, 0, 1, 128)
	must(t, again.keyed.Backend().Restore(nil))
	for round, done := range results {
		got := <-done
		fillKinds(t, again, round)
		f, err := again.keyed.Backend().Freeze()
		must(t, err)
		if p := write(t, f, keygroup.Range{First: 0, Last: 127}); !bytes.Equal(p.Data, got) {
			t.Errorf("the snapshot of round %d, written while later rounds went on, is not that of the round", round)
		}
		f.Release()
	}
}
