package state

import (
	"time"

	"github.com/weirstream/weir/pkg/statebackend"
)

// lifetime is what the states with time-to-live below have in common.
type lifetime struct {
	clock   *statebackend.Clock
	read    func() time.Time
	ttl     int64 // milliseconds
	onRead  bool
	sweeper statebackend.Sweeper // nil if the backend removes expired values by itself
}

// lifetime is that of a state which the backend keeps as inner.
func (k *Keyed[K]) lifetime(s *ttlSettings, inner any) lifetime {
	sweeper, _ := inner.(statebackend.Sweeper)
	return lifetime{clock: &k.clock, read: k.options.Now, ttl: s.after.Milliseconds(), onRead: s.modes&OnReadAndWrite != 0, sweeper: sweeper}
}

// timed describes the same state to the backend, with a time beside each value.
func timed[V any, K comparable](k *Keyed[K], d statebackend.Descriptor[K, V], s *ttlSettings) statebackend.Descriptor[K, statebackend.Timed[V]] {
	k.expiring = true
	k.Tick()
	return statebackend.Descriptor[K, statebackend.Timed[V]]{
		Name: d.Name, Kind: d.Kind, Key: d.Key, Current: d.Current,
		Codec: statebackend.TimedCodec(d.Codec), Clock: &k.clock,
		Form: statebackend.TimedForm[V]{Codec: d.Codec, Clock: &k.clock, TTL: s.after.Milliseconds(), Ages: s.modes&NotWhileDown != 0},
	}
}

// begin is called before every access. It reads the clock each time, as a time
// read for a batch of records can be old: a value written after a stall, for
// which the disk or user code is enough, would expire early by as much.
func (l *lifetime) begin() {
	tick(l.clock, l.read)
	if l.sweeper != nil {
		l.sweeper.Sweep()
	}
}

func (l *lifetime) isExpired(at int64) bool { return l.clock.Now-at >= l.ttl }

// isStale reports whether a read has to put off the end of a value written at at.
func (l *lifetime) isStale(at int64) bool { return l.onRead && at < l.clock.Now }

// timedValue is a Value with time-to-live.
type timedValue[V any] struct {
	inner Value[statebackend.Timed[V]]
	life  lifetime
}

// Get implements statebackend.Value.
func (v *timedValue[V]) Get() (V, bool, error) {
	v.life.begin()
	var zero V
	t, found, err := v.inner.Get()
	switch {
	case err != nil || !found:
		return zero, false, err
	case v.life.isExpired(t.At):
		return zero, false, v.inner.Clear()
	case v.life.isStale(t.At):
		p, _, err := v.inner.Ref()
		if err != nil {
			return zero, false, err
		}
		p.At = v.life.clock.Now
		return p.Value, true, nil
	}
	return t.Value, true, nil
}

// Set implements statebackend.Value.
func (v *timedValue[V]) Set(to V) error {
	v.life.begin()
	return v.inner.Set(statebackend.Timed[V]{At: v.life.clock.Now, Value: to})
}

// Ref implements statebackend.Value.
func (v *timedValue[V]) Ref() (*V, bool, error) {
	v.life.begin()
	p, found, err := v.inner.Ref()
	if err != nil {
		return nil, false, err
	}
	at, found := renew(&v.life, p, found)
	return at, found, nil
}

// Clear implements statebackend.Value.
func (v *timedValue[V]) Clear() error { return v.inner.Clear() }

// renew makes a value that is about to be written one of now, and zero if it
// was there but has expired.
func renew[V any](l *lifetime, p *statebackend.Timed[V], found bool) (*V, bool) {
	if found && l.isExpired(p.At) {
		*p, found = statebackend.Timed[V]{}, false
	}
	p.At = l.clock.Now
	return &p.Value, found
}

// timedList is a List whose elements have a time-to-live.
type timedList[E any] struct {
	inner List[statebackend.Timed[E]]
	life  lifetime
}

// Get implements statebackend.List.
func (l *timedList[E]) Get() ([]E, error) {
	l.life.begin()
	all, err := l.inner.Get()
	if err != nil || all == nil {
		return nil, err
	}
	kept, changed := all[:0], false
	for i := range all {
		e := all[i]
		if l.life.isExpired(e.At) {
			changed = true
			continue
		}
		if l.life.isStale(e.At) {
			e.At, changed = l.life.clock.Now, true
		}
		kept = append(kept, e)
	}
	if changed {
		clear(all[len(kept):])
		if err := l.inner.Set(kept); err != nil {
			return nil, err
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	out := make([]E, len(kept))
	for i := range kept {
		out[i] = kept[i].Value
	}
	return out, nil
}

// Add implements statebackend.List.
func (l *timedList[E]) Add(v E) error {
	l.life.begin()
	return l.inner.Add(statebackend.Timed[E]{At: l.life.clock.Now, Value: v})
}

// AddAll implements statebackend.List.
func (l *timedList[E]) AddAll(v []E) error {
	l.life.begin()
	return l.inner.AddAll(l.ofNow(v))
}

// Set implements statebackend.List.
func (l *timedList[E]) Set(v []E) error {
	l.life.begin()
	return l.inner.Set(l.ofNow(v))
}

func (l *timedList[E]) ofNow(v []E) []statebackend.Timed[E] {
	out := make([]statebackend.Timed[E], len(v))
	for i := range v {
		out[i] = statebackend.Timed[E]{At: l.life.clock.Now, Value: v[i]}
	}
	return out
}

// Clear implements statebackend.List.
func (l *timedList[E]) Clear() error { return l.inner.Clear() }

// timedMap is a Map whose user keys have a time-to-live.
type timedMap[U comparable, V any] struct {
	inner Map[U, statebackend.Timed[V]]
	life  lifetime
}

// Get implements statebackend.Map.
func (m *timedMap[U, V]) Get(key U) (V, bool, error) {
	m.life.begin()
	var zero V
	t, found, err := m.inner.Get(key)
	switch {
	case err != nil || !found:
		return zero, false, err
	case m.life.isExpired(t.At):
		return zero, false, m.inner.Remove(key)
	case m.life.isStale(t.At):
		p, _, err := m.inner.Ref(key)
		if err != nil {
			return zero, false, err
		}
		p.At = m.life.clock.Now
		return p.Value, true, nil
	}
	return t.Value, true, nil
}

// Set implements statebackend.Map.
func (m *timedMap[U, V]) Set(key U, v V) error {
	m.life.begin()
	return m.inner.Set(key, statebackend.Timed[V]{At: m.life.clock.Now, Value: v})
}

// Ref implements statebackend.Map.
func (m *timedMap[U, V]) Ref(key U) (*V, bool, error) {
	m.life.begin()
	p, found, err := m.inner.Ref(key)
	if err != nil {
		return nil, false, err
	}
	v, found := renew(&m.life, p, found)
	return v, found, nil
}

// Remove implements statebackend.Map.
func (m *timedMap[U, V]) Remove(key U) error { return m.inner.Remove(key) }

// Len implements statebackend.Map. It passes over the whole map.
func (m *timedMap[U, V]) Len() (int, error) {
	n := 0
	err := m.each(func(U, *statebackend.Timed[V]) error {
		n++
		return nil
	})
	return n, err
}

// Each implements statebackend.Map.
func (m *timedMap[U, V]) Each(do func(key U, v V) error) error {
	return m.each(func(key U, t *statebackend.Timed[V]) error {
		if m.life.isStale(t.At) {
			p, _, err := m.inner.Ref(key)
			if err != nil {
				return err
			}
			p.At = m.life.clock.Now
		}
		return do(key, t.Value)
	})
}

// each passes over what has not expired, and removes the rest.
func (m *timedMap[U, V]) each(do func(key U, t *statebackend.Timed[V]) error) error {
	return m.inner.Each(func(key U, t statebackend.Timed[V]) error {
		if m.life.isExpired(t.At) {
			return m.inner.Remove(key)
		}
		return do(key, &t)
	})
}

// Clear implements statebackend.Map.
func (m *timedMap[U, V]) Clear() error { return m.inner.Clear() }
