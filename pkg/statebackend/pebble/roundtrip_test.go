package pebble_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// job is the keyed state of one subtask, with a value, a list and a map.
type job struct {
	keyed *state.Keyed[string]
	value state.Value[int64]
	list  state.List[string]
	users state.Map[string, int64]
}

func open(t *testing.T, b statebackend.Backend, r keygroup.Range, parts ...statebackend.RestoredPart) *job {
	t.Helper()
	j := &job{}
	var err error
	j.keyed, err = state.NewKeyed[string](state.Options{Operator: "op", Range: r, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
	must(t, err)
	j.value, err = state.NewValue[int64](j.keyed, "value")
	must(t, err)
	j.list, err = state.NewList[string](j.keyed, "list")
	must(t, err)
	j.users, err = state.NewMap[string, int64](j.keyed, "users")
	must(t, err)
	must(t, j.keyed.Backend().Restore(parts))
	t.Cleanup(func() { must(t, j.keyed.Backend().Close()) })
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// change changes some keys, differently in each round.
func (j *job) change(t *testing.T, round int) {
	t.Helper()
	for k := range 200 {
		if k%(round+1) != 0 {
			continue
		}
		must(t, j.keyed.SetCurrentKey(fmt.Sprint("key-", k)))
		must(t, j.value.Set(int64(k*round)))
		must(t, j.list.Add(fmt.Sprint(round)))
		must(t, j.users.Set(fmt.Sprint("u", round), int64(k)))
		if k%7 == round {
			must(t, j.users.Clear())
			must(t, j.value.Clear())
		}
	}
}

func (j *job) freeze(t *testing.T) statebackend.Frozen {
	t.Helper()
	f, err := j.keyed.Backend().Freeze()
	must(t, err)
	return f
}

func canonical(t *testing.T, f statebackend.Frozen, r keygroup.Range) statebackend.RestoredPart {
	t.Helper()
	var out bytes.Buffer
	offsets, states, err := f.WriteSnapshot(&out)
	must(t, err)
	return statebackend.RestoredPart{Range: r, Offsets: offsets, States: states, Data: out.Bytes()}
}

// Files hold what the view holds, whatever was changed since, at the same
// key groups and at fewer; the bytes of a canonical snapshot are those of memory.
func TestFilesAreTheView(t *testing.T) {
	t.Parallel()
	all := keygroup.Range{First: 0, Last: 15}
	for _, size := range []int64{1, pebble.DefaultMemoryBytes} {
		b := pebble.New(pebble.Options{MemoryBytes: size})
		j, m := open(t, b, all), open(t, memory.New(), all)
		for round := range 4 {
			j.change(t, round)
			m.change(t, round)
			f, g := j.freeze(t), m.freeze(t)
			want := canonical(t, g, all)
			g.Release()
			// Later changes are not in the files of the view.
			j.change(t, round+10)
			m.change(t, round+10)
			later := j.freeze(t)
			later.Release()
			set, err := f.(statebackend.FileFrozen).Files(t.Context())
			must(t, err)
			part := statebackend.RestoredPart{Range: all, States: set.States, Backend: pebble.Name, Files: set.Files}
			if got := canonical(t, f, all); !bytes.Equal(got.Data, want.Data) {
				t.Fatalf("round %d: %d canonical bytes are not the %d of memory", round, len(got.Data), len(want.Data))
			}
			for _, r := range []keygroup.Range{all, {First: 3, Last: 9}} {
				a, w := open(t, b, r, part), open(t, memory.New(), r, want)
				x, y := a.freeze(t), w.freeze(t)
				if !bytes.Equal(canonical(t, x, r).Data, canonical(t, y, r).Data) {
					t.Fatalf("round %d: key groups %s restored from files are not those of the view", round, r)
				}
				x.Release()
				y.Release()
			}
			f.Release()
		}
	}
}
