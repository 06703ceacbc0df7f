package timer

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Stored is what StateMeta.Kind says of timers.
const Stored = "timers"

// How times are stored: the times of a key, ascending, in eight bytes each.
const (
	codecName   = "weir/1"
	codecSchema = "[]int64"
)

// names are those of the two queues in a snapshot; their places are their
// numbers there.
var names = [2]string{"event-time", "processing-time"}

// Timers are both queues of one operator, as they are stored and restored
// together.
type Timers[K comparable] struct {
	// EventTime and ProcessingTime are the queues.
	EventTime, ProcessingTime *Queue[K]
	encoding                  *keygroup.Encoding[K]
	groups                    keygroup.Range
	maxParallelism            int
}

// New makes the timers of an operator in a subtask, of which there are none.
// Its error is that of a key type that cannot be one.
func New[K comparable](groups keygroup.Range, maxParallelism int) (*Timers[K], error) {
	encoding, err := keygroup.NewEncoding[K]()
	if err != nil {
		return nil, err
	}
	return &Timers[K]{
		EventTime: NewQueue(encoding, groups, maxParallelism), ProcessingTime: NewQueue(encoding, groups, maxParallelism),
		encoding: encoding, groups: groups, maxParallelism: maxParallelism,
	}, nil
}

// Len is the number of timers.
func (t *Timers[K]) Len() int { return t.EventTime.Len() + t.ProcessingTime.Len() }

func (t *Timers[K]) queues() [2]*Queue[K] { return [2]*Queue[K]{t.EventTime, t.ProcessingTime} }

// Split divides restored keyed state into timers and the rest.
func Split(parts []statebackend.RestoredPart) (timers, rest []statebackend.RestoredPart) {
	for _, p := range parts {
		if slices.ContainsFunc(p.States, func(m snapshot.StateMeta) bool { return m.Kind == Stored }) {
			timers = append(timers, p)
		} else {
			rest = append(rest, p)
		}
	}
	return timers, rest
}

// Restore registers what the parts hold of the own key groups.
func (t *Timers[K]) Restore(parts []statebackend.RestoredPart) error {
	for i := range parts {
		p := &parts[i]
		queues := make([]*Queue[K], len(p.States))
		for n, m := range p.States {
			which := slices.Index(names[:], m.Name)
			switch {
			case m.Kind != Stored || which < 0 || m.Codec != codecName || m.Schema != codecSchema:
				return fmt.Errorf("restore timers: %q of kind %s, stored with codec %s as %s, is unknown", m.Name, m.Kind, m.Codec, m.Schema)
			case m.KeySchema != t.encoding.Schema():
				return fmt.Errorf("restore timers: stored with keys %s, the program has %s: the key type of timers cannot change", m.KeySchema, t.encoding.Schema())
			}
			queues[n] = t.queues()[which]
		}
		err := p.Groups(t.groups, func(g keygroup.Group, data []byte) error {
			return statebackend.ReadGroup(data, len(queues), func(n int, key, value []byte) error {
				return t.restoreKey(queues[n], g, key, value)
			})
		})
		if err != nil {
			return fmt.Errorf("restore timers: %w", err)
		}
	}
	return nil
}

func (t *Timers[K]) restoreKey(q *Queue[K], g keygroup.Group, key, value []byte) error {
	k, n, err := t.encoding.Decode(key)
	if err != nil {
		return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	if n != len(key) {
		return fmt.Errorf("%w: a key of %d bytes ends after %d", statebackend.ErrCorrupt, len(key), n)
	}
	if owner := keygroup.OfHash(t.encoding.Hash(&k), t.maxParallelism); owner != g {
		return fmt.Errorf("%w: a key of group %d is stored in group %d", statebackend.ErrCorrupt, owner, g)
	}
	_, _, times, err := statebackend.ValueHeader(value)
	if err != nil {
		return err
	}
	if len(times)%8 != 0 {
		return fmt.Errorf("%w: times of %d bytes", statebackend.ErrCorrupt, len(times))
	}
	for ; len(times) > 0; times = times[8:] {
		q.Register(k, int64(binary.BigEndian.Uint64(times)))
	}
	return nil
}

// Freeze marks the present timers; what happens to them later is not in the
// view. It takes a pointer for each key group; a group is copied when it is
// changed for the first time afterwards.
func (t *Timers[K]) Freeze() statebackend.Frozen {
	f := &frozen[K]{keySchema: t.encoding.Schema()}
	for n, q := range t.queues() {
		f.groups[n] = make([][]*entry[K], len(q.byGroup))
		for i, g := range q.byGroup {
			f.groups[n][i] = g.entries
		}
		q.generation++
	}
	return f
}

// frozen is the timers at one moment: the heaps of each group, by queue.
type frozen[K comparable] struct {
	groups    [2][][]*entry[K]
	keySchema string
}

// WriteSnapshot implements statebackend.Frozen.
func (f *frozen[K]) WriteSnapshot(dst io.Writer) ([]int64, []snapshot.StateMeta, error) {
	w := statebackend.NewWriter(dst)
	var value []byte
	for i := range f.groups[0] {
		w.Group()
		for n := range f.groups {
			// Equal timers give equal bytes, whatever the heap looks like.
			sorted := slices.Clone(f.groups[n][i])
			slices.SortFunc(sorted, func(a, b *entry[K]) int {
				if c := strings.Compare(a.bytes, b.bytes); c != 0 {
					return c
				}
				return a.compare(b)
			})
			keys := 0
			for e := range sorted {
				if e == 0 || sorted[e].bytes != sorted[e-1].bytes {
					keys++
				}
			}
			if keys > 0 {
				w.State(n, keys)
			}
			for len(sorted) > 0 {
				key := sorted[0].bytes
				value = statebackend.AppendValueHeader(value[:0], 0, 0)
				for len(sorted) > 0 && sorted[0].bytes == key {
					value = binary.BigEndian.AppendUint64(value, uint64(sorted[0].time))
					sorted = sorted[1:]
				}
				w.Entry([]byte(key), value)
			}
		}
		if err := w.Err(); err != nil {
			return nil, nil, fmt.Errorf("write timers: %w", err)
		}
	}
	offsets, err := w.Finish()
	if err != nil {
		return nil, nil, err
	}
	return offsets, describe(f.keySchema), nil
}

// Describe is what snapshots say of the timers.
func (t *Timers[K]) Describe() []snapshot.StateMeta { return describe(t.encoding.Schema()) }

func describe(keySchema string) []snapshot.StateMeta {
	states := make([]snapshot.StateMeta, len(names))
	for n, name := range names {
		states[n] = snapshot.StateMeta{Name: name, Kind: Stored, Codec: codecName, Schema: codecSchema, KeySchema: keySchema}
	}
	return states
}

// Release implements statebackend.Frozen.
func (f *frozen[K]) Release() { f.groups = [2][][]*entry[K]{} }
