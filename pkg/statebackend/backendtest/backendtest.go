package backendtest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/internal/racedetector"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Factory makes a fresh backend for one case of the suite; what it needs on
// disk it takes from t.TempDir. Cases run at once, and so may it.
type Factory func(t *testing.T) statebackend.Backend

// checksWithRace are the checks of each property under the race detector: what
// the states hold is shown without it, and races do not need many.
const checksWithRace = "15"

// fewerWithRace sets them, before the first case of any run.
var fewerWithRace = sync.OnceValue(func() error {
	if f := flag.Lookup("rapid.checks"); racedetector.Enabled && f.Value.String() == f.DefValue {
		return f.Value.Set(checksWithRace)
	}
	return nil
})

// testCase is one case of the suite, with a backend of its own.
type testCase struct {
	name string
	run  func(t *testing.T, b statebackend.Backend)
}

var testCases = []testCase{
	{"model/string keys", func(t *testing.T, b statebackend.Backend) { modelRun(t, b, drawString) }},
	{"model/uint64 keys", func(t *testing.T, b statebackend.Backend) { modelRun(t, b, drawWord) }},
	{"model/struct keys", func(t *testing.T, b statebackend.Backend) { modelRun(t, b, drawPair) }},
	{"every kind/string keys", func(t *testing.T, b statebackend.Backend) { kindsRun(t, b, drawString) }},
	{"every kind/uint64 keys", func(t *testing.T, b statebackend.Backend) { kindsRun(t, b, drawWord) }},
	// Of structs as keys the model above tells, and of maps by several fields
	// together the user keys do: each type of keys takes long to compile.
	{"kinds are told apart", kindMismatches},
	{"every kind/damaged bytes", damagedKinds},
	{"every kind/concurrently", kindsConcurrently},
	{"ttl/model", func(t *testing.T, b statebackend.Backend) { ttlRun(t, b, 0) }},
	{"ttl/model, on read and write", func(t *testing.T, b statebackend.Backend) { ttlRun(t, b, state.OnReadAndWrite) }},
	{"ttl/model, not while down", func(t *testing.T, b statebackend.Backend) { ttlRun(t, b, state.NotWhileDown) }},
	{"evolution/model", evolutionRun},
	{"ttl/cleanup", ttlCleanup},
	{"ttl/comes and goes", ttlComesAndGoes},
	{"many keys", manyKeys},
	{"equal content gives equal bytes", equalBytes},
	{"keys are ordered by their bytes", orderedKeys},
	{"life", life},
	{"mismatches are refused by name", mismatches},
	{"corrupt bytes are refused", corruption},
	{"processing goes on while a snapshot is written", concurrentWrite},
	{"failed write can be repeated", failedWrite},
}

// Run runs the suite, its cases beside each other.
func Run(t *testing.T, factory Factory) {
	if err := fewerWithRace(); err != nil {
		t.Fatal(err)
	}
	for _, c := range testCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, fresh(t, factory))
		})
	}
}

// placed gives every keyed state a directory of its own.
type placed struct {
	statebackend.Backend
	root string
	next atomic.Int64
}

func fresh(t *testing.T, factory Factory) statebackend.Backend {
	return &placed{Backend: factory(t), root: t.TempDir()}
}

// Open implements statebackend.Backend.
func (p *placed) Open(o statebackend.Options) (statebackend.KeyedState, error) {
	o.Dir = filepath.Join(p.root, strconv.FormatInt(p.next.Add(1), 10))
	return p.Backend.Open(o)
}

// closing closes a state when the test, or the run of it that rapid makes, ends.
func closing(t rapid.TB, s statebackend.KeyedState) {
	if c, ok := t.(interface{ Cleanup(f func()) }); ok {
		c.Cleanup(func() { must(t, s.Close()) })
	}
}

// count is the number of entries that are held, exactly: backends whose Stats
// only estimate have a method for it.
func count(t rapid.TB, s statebackend.KeyedState) int64 {
	t.Helper()
	c, ok := s.(interface{ CountEntries() (int64, error) })
	if !ok {
		return s.Stats().Entries
	}
	n, err := c.CountEntries()
	must(t, err)
	return n
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
	closing(t, keyed.Backend())
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

// take is the snapshot of a view in one of the forms that the backend has, at
// random. What is in files is there until the view is released.
func take(t *rapid.T, b statebackend.Backend, f statebackend.Frozen, r keygroup.Range) stored {
	files, ok := f.(statebackend.FileFrozen)
	if !ok || rapid.Bool().Draw(t, "canonical") {
		return write(t, f, r)
	}
	set, err := files.Files(context.Background())
	must(t, err)
	return stored{Range: r, States: set.States, Backend: b.Name(), Files: set.Files}
}

// takeAll is take of the views of all subtasks of a job.
func takeAll(t *rapid.T, b statebackend.Backend, frozen []statebackend.Frozen, maxParallelism int) []stored {
	var parts []stored
	for i, f := range frozen {
		p := take(t, b, f, keygroup.RangeOf(i, len(frozen), maxParallelism))
		p.Number = i
		parts = append(parts, p)
	}
	return parts
}

// freezeAll freezes the state of all subtasks.
func freezeAll(t rapid.TB, keyed []statebackend.KeyedState) []statebackend.Frozen {
	frozen := make([]statebackend.Frozen, len(keyed))
	for i, k := range keyed {
		f, err := k.Freeze()
		must(t, err)
		frozen[i] = f
	}
	return frozen
}

func releaseAll(frozen []statebackend.Frozen) {
	for _, f := range frozen {
		f.Release()
	}
}

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
