package backendtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// timeToLive is that of all states of the suite.
const timeToLive = 100 * time.Millisecond

// ttlGroups is the max parallelism of jobs with states that expire.
const ttlGroups = 8

// expiring is one subtask with states that expire.
type expiring struct {
	keyed *state.Keyed[string]
	value state.Value[deepValue]
	list  state.List[int64]
	users state.Map[string, int64]
}

// openExpiring opens a subtask that owns everything.
func openExpiring(t rapid.TB, b statebackend.Backend, now func() time.Time, options ...state.Option) *expiring {
	t.Helper()
	return openExpiringOf(t, b, keygroup.RangeOf(0, 1, ttlGroups), now, options...)
}

func openExpiringOf(t rapid.TB, b statebackend.Backend, r keygroup.Range, now func() time.Time, options ...state.Option) *expiring {
	t.Helper()
	o := &expiring{}
	var err error
	o.keyed, err = state.NewKeyed[string](state.Options{
		Operator: "op", Range: r, MaxParallelism: ttlGroups, Backend: b, Now: now,
	})
	must(t, err)
	closing(t, o.keyed.Backend())
	o.value, err = state.NewValue[deepValue](o.keyed, "value", options...)
	must(t, err)
	o.list, err = state.NewList[int64](o.keyed, "list", options...)
	must(t, err)
	o.users, err = state.NewMap[string, int64](o.keyed, "users", options...)
	must(t, err)
	return o
}

func (o *expiring) snapshot(t rapid.TB) stored {
	t.Helper()
	o.keyed.Tick()
	f, err := o.keyed.Backend().Freeze()
	must(t, err)
	defer f.Release()
	return write(t, f, keygroup.Range{First: 0, Last: 7})
}

// dated is a value of the model and when it was written.
type dated[V any] struct {
	v  V
	at int64
}

// ttlModel is what the states of one key hold, expired or not.
type ttlModel struct {
	value *dated[deepValue]
	list  []dated[int64]
	users map[string]dated[int64]
}

// ttlMachine is a job with a clock that may go back, beside its model.
type ttlMachine struct {
	backend  statebackend.Backend
	encoding *keygroup.Encoding[string]
	modes    state.TTLMode
	wall     int64 // what the host's clock says
	now      int64 // what the states go by
	subtasks []*expiring
	o        *expiring // that is used now
	model    map[string]*ttlModel
}

func (m *ttlMachine) clock() time.Time    { return time.UnixMilli(m.wall) }
func (m *ttlMachine) lives(at int64) bool { return m.now-at < timeToLive.Milliseconds() }

// start opens the states from parts, at what the clock says then.
func (m *ttlMachine) start(t *rapid.T, parts []stored) {
	m.subtasks = nil
	parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
	for i := range parallelism {
		o := openExpiringOf(t, m.backend, keygroup.RangeOf(i, parallelism, ttlGroups), m.clock, state.WithTTL(timeToLive, m.modes))
		must(t, o.keyed.Backend().Restore(parts))
		m.subtasks = append(m.subtasks, o)
	}
	m.now = m.wall
}

// at makes key current in the subtask that owns it.
func (m *ttlMachine) at(t rapid.TB, key string) {
	g := keygroup.OfHash(m.encoding.Hash(&key), ttlGroups)
	m.o = m.subtasks[keygroup.OwnerOf(g, len(m.subtasks), ttlGroups)]
	must(t, m.o.keyed.SetCurrentKey(key))
}

// tick brings all subtasks to the time of the clock.
func (m *ttlMachine) tick() {
	for _, o := range m.subtasks {
		o.keyed.Tick()
	}
	m.now = max(m.now, m.wall) // it stands still while the clock is behind
}

// restore goes on from a snapshot of now, after some time.
func (m *ttlMachine) restore(t *rapid.T) {
	m.tick()
	var keyed []statebackend.KeyedState
	for _, o := range m.subtasks {
		keyed = append(keyed, o.keyed.Backend())
	}
	frozen := freezeAll(t, keyed)
	defer releaseAll(frozen)
	parts := takeAll(t, m.backend, frozen, ttlGroups)
	at, down := m.now, rapid.Int64Range(-50, 150).Draw(t, "ms down")
	if slices.ContainsFunc(parts, func(p stored) bool { return p.Backend != "" }) {
		// Files may have what had expired, by a clock that must not go back.
		m.wall, down = at, max(0, down)
	}
	m.wall += down
	shift := int64(0)
	if m.modes&state.NotWhileDown != 0 {
		shift = m.wall - at
	}
	m.forget(shift)
	m.start(t, parts)
}

// forget drops what has expired, for good, and moves what is left by some time.
func (m *ttlMachine) forget(shift int64) {
	for _, h := range m.model {
		if h.value != nil && !m.lives(h.value.at) {
			h.value = nil
		} else if h.value != nil {
			h.value.at += shift
		}
		h.list = slices.DeleteFunc(h.list, func(d dated[int64]) bool { return !m.lives(d.at) })
		for i := range h.list {
			h.list[i].at += shift
		}
		maps.DeleteFunc(h.users, func(_ string, d dated[int64]) bool { return !m.lives(d.at) })
		for u, d := range h.users {
			h.users[u] = dated[int64]{d.v, d.at + shift}
		}
	}
}

// expect reads all states of a key.
func (m *ttlMachine) expect(t rapid.TB, h *ttlModel) {
	t.Helper()
	m.forget(0)
	v, found, err := m.o.value.Get()
	must(t, err)
	if found != (h.value != nil) || found && !v.equal(h.value.v) {
		t.Fatalf("at %d the value is %+v %v, want %+v", m.now, v, found, h.value)
	}
	list, err := m.o.list.Get()
	must(t, err)
	if !slices.EqualFunc(list, h.list, func(v int64, d dated[int64]) bool { return v == d.v }) {
		t.Fatalf("at %d the list is %v, want %+v", m.now, list, h.list)
	}
	n, err := m.o.users.Len()
	must(t, err)
	if n != len(h.users) {
		t.Fatalf("at %d there are %d user keys, want %+v", m.now, n, h.users)
	}
	n = 0
	must(t, m.o.users.Each(func(u string, v int64) error {
		if d, ok := h.users[u]; !ok || d.v != v {
			t.Fatalf("at %d user key %q is %d, want %+v", m.now, u, v, h.users)
		}
		n++
		return nil
	}))
	if n != len(h.users) {
		t.Fatalf("at %d there were %d user keys, want %+v", m.now, n, h.users)
	}
	if m.modes&state.OnReadAndWrite != 0 {
		m.renew(h)
	}
}

// renew is what reading does with OnReadAndWrite.
func (m *ttlMachine) renew(h *ttlModel) {
	if h.value != nil {
		h.value.at = max(h.value.at, m.now)
	}
	for i := range h.list {
		h.list[i].at = max(h.list[i].at, m.now)
	}
	for u, d := range h.users {
		h.users[u] = dated[int64]{d.v, max(d.at, m.now)}
	}
}

func (m *ttlMachine) change(t *rapid.T, h *ttlModel) {
	n := rapid.Int64Range(0, 99).Draw(t, "n")
	u := fmt.Sprint("u", n%10)
	switch rapid.SampledFrom([]string{"set", "ref", "add", "set list", "user", "user ref", "remove"}).Draw(t, "change") {
	case "set":
		must(t, m.o.value.Set(deepValue{List: []int64{n}}))
		h.value = &dated[deepValue]{deepValue{List: []int64{n}}, m.now}
	case "ref":
		p, found, err := m.o.value.Ref()
		must(t, err)
		if found != (h.value != nil && m.lives(h.value.at)) {
			t.Fatalf("at %d Ref found %v, want %+v", m.now, found, h.value)
		}
		p.List = append(p.List, n)
		if !found {
			h.value = &dated[deepValue]{}
		}
		h.value = &dated[deepValue]{deepValue{List: append(slices.Clone(h.value.v.List), n)}, m.now}
	case "add":
		must(t, errors.Join(m.o.list.Add(n), m.o.list.AddAll([]int64{n + 1})))
		h.list = append(h.list, dated[int64]{n, m.now}, dated[int64]{n + 1, m.now})
	case "set list":
		must(t, m.o.list.Set([]int64{n}))
		h.list = []dated[int64]{{n, m.now}}
	case "user":
		must(t, m.o.users.Set(u, n))
		h.users[u] = dated[int64]{n, m.now}
	case "user ref":
		p, found, err := m.o.users.Ref(u)
		must(t, err)
		if d, ok := h.users[u]; found != (ok && m.lives(d.at)) || found && *p != d.v {
			t.Fatalf("at %d Ref found %d %v, want %+v", m.now, *p, found, d)
		}
		*p = n
		h.users[u] = dated[int64]{n, m.now}
	case "remove":
		must(t, m.o.users.Remove(u))
		delete(h.users, u)
	}
}

func ttlRun(t *testing.T, b statebackend.Backend, modes state.TTLMode) {
	encoding, err := keygroup.NewEncoding[string]()
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		m := &ttlMachine{backend: b, encoding: encoding, modes: modes, wall: 1_000_000, model: map[string]*ttlModel{}}
		m.start(t, nil)
		t.Repeat(map[string]func(*rapid.T){
			"records": func(t *rapid.T) {
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				h := m.model[key]
				if h == nil {
					h = &ttlModel{users: map[string]dated[int64]{}}
					m.model[key] = h
				}
				m.at(t, key)
				for range rapid.IntRange(0, 4).Draw(t, "changes") {
					m.change(t, h)
				}
				m.expect(t, h)
			},
			"time": func(t *rapid.T) {
				m.wall += rapid.OneOf(rapid.Int64Range(0, 60), rapid.Int64Range(-300, 300)).Draw(t, "ms")
				m.tick()
			},
			"sweep": func(t *rapid.T) {
				m.at(t, fmt.Sprint("other", rapid.IntRange(0, 9).Draw(t, "other")))
				for range 600 {
					_, _, err := m.o.value.Get()
					must(t, err)
					_, err = m.o.list.Get()
					must(t, err)
					_, _, err = m.o.users.Get("u")
					must(t, err)
				}
			},
			"restore": m.restore,
			"":        func(*rapid.T) {},
		})
		for key, h := range m.model {
			m.at(t, key)
			m.expect(t, h)
		}
	})
}

// ttlCleanup: what has expired goes without being asked for, little by little
// as other keys are used and checkpoints are taken, and is not in snapshots.
func ttlCleanup(t *testing.T, b statebackend.Backend) {
	const keys = 3000
	wall := int64(1_000_000)
	o := openExpiring(t, b, func() time.Time { return time.UnixMilli(wall) }, state.WithTTL(timeToLive))
	must(t, o.keyed.Backend().Restore(nil))
	for i := range keys {
		must(t, o.keyed.SetCurrentKey(fmt.Sprint("key-", i)))
		must(t, errors.Join(o.value.Set(deepValue{}), o.list.Add(1), o.users.Set("a", 1), o.users.Set("b", 1)))
	}
	wall += timeToLive.Milliseconds()
	if p := o.snapshot(t); len(p.Data) != 0 {
		t.Errorf("a snapshot of what has expired has %d bytes", len(p.Data))
	}
	must(t, o.keyed.SetCurrentKey("one"))
	for i := range 4 * keys {
		must(t, errors.Join(o.value.Set(deepValue{}), o.list.Set([]int64{1}), o.users.Set("a", 1)))
		if i%300 == 0 {
			f, err := o.keyed.Backend().Freeze()
			must(t, err)
			f.Release()
		}
	}
	if n := count(t, o.keyed.Backend()); n != 3 {
		t.Errorf("%d entries are left, want 3", n)
	}
}

// ttlComesAndGoes: state is restored with and without time-to-live, whichever
// way it was stored (FLINK-9637), and downtime counts unless it is told not to
// (FLINK-9514).
func ttlComesAndGoes(t *testing.T, b statebackend.Backend) {
	const start = int64(1_000_000)
	none := []state.Option(nil)
	after := []state.Option{state.WithTTL(timeToLive)}
	awake := []state.Option{state.WithTTL(timeToLive, state.NotWhileDown)}
	for _, c := range []struct {
		name    string
		was, is []state.Option
		down    int64
		lives   bool
		later   bool // it still lives that long after the restore
	}{
		{"never had one", none, none, 1 << 40, true, true},
		{"gets one", none, after, 1 << 30, true, false},
		{"loses it", after, none, 1 << 30, true, true},
		{"loses it, stored as age", awake, none, 1 << 30, true, true},
		{"downtime counts", after, after, timeToLive.Milliseconds(), false, false},
		{"short downtime", after, after, 50, true, false},
		{"downtime does not count", awake, awake, 1 << 30, true, false},
		{"stored as age", awake, after, 1 << 30, true, false},
		{"stored as time", after, awake, 1 << 30, false, false},
	} {
		wall := start
		now := func() time.Time { return time.UnixMilli(wall) }
		o := openExpiring(t, b, now, c.was...)
		must(t, o.keyed.Backend().Restore(nil))
		must(t, o.keyed.SetCurrentKey("k"))
		must(t, errors.Join(o.value.Set(deepValue{Name: "v"}), o.list.AddAll([]int64{1, 2}), o.users.Set("u", 3)))
		p := o.snapshot(t)
		wall += c.down
		o = openExpiring(t, b, now, c.is...)
		must(t, o.keyed.Backend().Restore([]stored{p}))
		for _, want := range []bool{c.lives, c.later} {
			o.keyed.Tick()
			must(t, o.keyed.SetCurrentKey("k"))
			v, found, err := o.value.Get()
			must(t, err)
			list, err := o.list.Get()
			must(t, err)
			u, userFound, err := o.users.Get("u")
			must(t, err)
			if found != want || userFound != want || want && (v.Name != "v" || !slices.Equal(list, []int64{1, 2}) || u != 3) || !want && list != nil {
				t.Errorf("%s: %+v %v, %v, %d %v; want %v", c.name, v, found, list, u, userFound, want)
			}
			wall += timeToLive.Milliseconds()
		}
	}
	keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: keygroup.Range{}, MaxParallelism: 1, Backend: b})
	must(t, err)
	_, err = state.NewValue[int64](keyed, "n", state.WithTTL(time.Hour))
	expectError(t, err, `"op"`, `"n"`, "clock")
	_, err = state.NewValue[int64](keyed, "n", state.WithTTL(time.Microsecond))
	expectError(t, err, `"n"`, "time-to-live of 1µs")
}
