package state_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

var write = flag.Bool("write", false, "write the snapshots of testdata that are missing: once per format, never again")

// position is a key of several fields.
type position struct {
	Airport string
	Gate    int16
}

// visit is a value that points to something.
type visit struct {
	Flights []string
	Late    map[string]int64
	Last    *int64
}

func visitOf(i int) visit {
	return visit{Flights: []string{fmt.Sprint("WN", i), "AA\x001"}, Late: map[string]int64{"ABQ": int64(i)}, Last: new(int64(-i))}
}

// openValues registers the states of testdata/values.json.
func openValues(t *testing.T, index, parallelism int) (*state.Keyed[position], state.Value[int64], state.Value[visit]) {
	t.Helper()
	k, err := state.NewKeyed[position](state.Options{
		Operator: "stored", Range: keygroup.RangeOf(index, parallelism, 128), MaxParallelism: 128, Backend: memory.New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	count, err := state.NewValue[int64](k, "count")
	if err != nil {
		t.Fatal(err)
	}
	last, err := state.NewValue[visit](k, "last")
	if err != nil {
		t.Fatal(err)
	}
	return k, count, last
}

const storedKeys = 40

func storedKey(i int) position {
	return position{Airport: fmt.Sprint("airport\x00", i), Gate: int16(i - storedKeys/2)}
}

// A snapshot of the first version, whose only kind of state was Value,
// restores into this one, at any parallelism.
func TestStoredValuesRestore(t *testing.T) {
	parts := storedParts(t, "values.json", func(t *testing.T, index, parallelism int) *state.Keyed[position] {
		k, count, last := openValues(t, index, parallelism)
		if err := k.Backend().Restore(nil); err != nil {
			t.Fatal(err)
		}
		for i := range storedKeys {
			key := storedKey(i)
			if err := k.SetCurrentKey(key); err != nil {
				continue // another subtask's
			}
			if err := count.Set(int64(i)); err != nil {
				t.Fatal(err)
			}
			if err := last.Set(visitOf(i)); err != nil {
				t.Fatal(err)
			}
		}
		return k
	})
	for parallelism := 1; parallelism <= 3; parallelism++ {
		found := 0
		for index := range parallelism {
			k, count, last := openValues(t, index, parallelism)
			if err := k.Backend().Restore(parts); err != nil {
				t.Fatal(err)
			}
			for i := range storedKeys {
				if k.SetCurrentKey(storedKey(i)) != nil {
					continue
				}
				n, hasCount, err := count.Get()
				if err != nil {
					t.Fatal(err)
				}
				v, hasLast, err := last.Get()
				if err != nil {
					t.Fatal(err)
				}
				w := visitOf(i)
				if !hasCount || !hasLast || n != int64(i) || !slices.Equal(v.Flights, w.Flights) || v.Late["ABQ"] != w.Late["ABQ"] || *v.Last != *w.Last {
					t.Errorf("key %d: %d %+v", i, n, v)
				}
				found++
			}
		}
		if found != storedKeys {
			t.Errorf("parallelism %d: %d keys", parallelism, found)
		}
	}
}

// storedParts reads a snapshot from testdata, written by two subtasks that fill makes.
func storedParts(t *testing.T, name string, fill func(t *testing.T, index, parallelism int) *state.Keyed[position]) []statebackend.RestoredPart {
	t.Helper()
	path := filepath.Join("testdata", name)
	var parts []statebackend.RestoredPart
	if _, err := os.Stat(path); *write && os.IsNotExist(err) {
		for index := range 2 {
			f, err := fill(t, index, 2).Backend().Freeze()
			if err != nil {
				t.Fatal(err)
			}
			p := statebackend.RestoredPart{Range: keygroup.RangeOf(index, 2, 128)}
			var data bytes.Buffer
			if p.Offsets, p.States, err = f.WriteSnapshot(&data); err != nil {
				t.Fatal(err)
			}
			f.Release()
			p.Data = data.Bytes()
			parts = append(parts, p)
		}
		stored, err := json.Marshal(parts)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(stored, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(stored, &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}
