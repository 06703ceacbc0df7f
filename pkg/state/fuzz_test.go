package state_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// allocatedMax is what reading some stored bytes may allocate: a constant for
// what an operator takes anyway, and a multiple of the bytes.
func allocatedMax(stored int) uint64 { return 8<<20 + uint64(stored)*2000 }

// allocated is what f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzRestoreOperator: descriptions of lists, their elements and the broadcast
// maps are restored or an error, in bounded memory.
func FuzzRestoreOperator(f *testing.F) {
	o := openOperatorStates()
	check(o.state.Restore(nil))
	o.split.Add(visitOf(1))
	o.union.Add("u")
	var side state.BroadcastSide
	side.Begin()
	check(o.flags.Set(&side, "on", true))
	check(o.limits.Set(&side, storedKey(1), visitOf(1)))
	stored := listsOf(o.state)
	f.Add(stored[state.DescriptionsList][0], stored["list/split"][0], stored[state.BroadcastList][0])
	f.Add(stored[state.DescriptionsList][1], stored["list/union"][0], []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, description, element, broadcast []byte) {
		o := openOperatorStates()
		var err error
		size := len(description) + len(element) + len(broadcast)
		if n := allocated(func() {
			err = o.state.Restore(map[string][][]byte{
				state.DescriptionsList: {description}, "list/split": {element}, state.BroadcastList: {broadcast},
			})
		}); n > allocatedMax(size) {
			t.Fatalf("%d bytes allocated for %d", n, size)
		}
		if err != nil {
			return
		}
		again := openOperatorStates()
		if err := again.state.Restore(listsOf(o.state)); err != nil {
			t.Fatalf("restored, and what is stored of it is not: %v", err)
		}
	})
}

// openSmallKinds are the states of openKinds in one key group, so that a key
// that is changed is still in its group.
func openSmallKinds() *kinds {
	k, err := state.NewKeyed[position](state.Options{
		Operator: "fuzz", Range: keygroup.Range{}, MaxParallelism: 1, Backend: memory.New(), Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) },
	})
	check(err)
	o := &kinds{keyed: k}
	o.register()
	return o
}

// smallPart stores the one key group.
func smallPart(k *state.Keyed[position]) statebackend.RestoredPart {
	frozen, err := k.Backend().Freeze()
	check(err)
	defer frozen.Release()
	var data bytes.Buffer
	var p statebackend.RestoredPart
	p.Offsets, p.States, err = frozen.WriteSnapshot(&data)
	check(err)
	p.Data = data.Bytes()
	return p
}

// FuzzRestoreKeyed: the entries of a key group, of every kind of state, are
// restored or are corrupt, in bounded memory; what was restored is stored as
// bytes that give the same bytes again.
func FuzzRestoreKeyed(f *testing.F) {
	o := openSmallKinds()
	check(o.keyed.Backend().Restore(nil))
	for i := range 2 {
		check(o.keyed.SetCurrentKey(storedKey(i)))
		check(o.list.AddAll([]visit{visitOf(i), visitOf(i + 1)}))
		check(o.byGate.Set(storedKey(i+1), int64(i)))
		check(o.sum.Add(int64(i)))
		check(o.mean.Add(int64(i)))
		check(o.timed.Set("until later"))
		check(o.aged.Set("u", visitOf(i)))
	}
	seed := smallPart(o.keyed)
	f.Add(seed.Data)
	f.Add([]byte{1, 0, 1, 1, 'k', 4, 0, 0, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		part := seed
		part.Data, part.Offsets = data, []int64{0, int64(len(data))}
		o := openSmallKinds()
		var err error
		if n := allocated(func() { err = o.keyed.Backend().Restore([]statebackend.RestoredPart{part}) }); n > allocatedMax(len(data)) {
			t.Fatalf("%d bytes allocated for %d", n, len(data))
		}
		if err != nil {
			if !errors.Is(err, statebackend.ErrCorrupt) {
				t.Fatalf("error without a class: %v", err)
			}
			return
		}
		first := smallPart(o.keyed)
		again := openSmallKinds()
		if err := again.keyed.Backend().Restore([]statebackend.RestoredPart{first}); err != nil {
			t.Fatalf("restored, and what is stored of it is not: %v", err)
		}
		if second := smallPart(again.keyed); !bytes.Equal(first.Data, second.Data) {
			t.Fatalf("stored as %x, and then as %x", first.Data, second.Data)
		}
	})
}
