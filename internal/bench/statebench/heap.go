package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// totals is the struct that is read, modified and written.
type totals struct {
	Count    uint64
	Sum      float64
	Min, Max float64
}

func (t *totals) add(x float64) {
	t.Count++
	t.Sum += x
	t.Min = min(t.Min, x)
	t.Max = max(t.Max, x)
}

// drawCount is a power of two, so that going round costs a mask.
const drawCount = 1 << 20

// snapshots are taken one after the other, as in a job: what the first costs
// more, in fresh memory, those that follow do not.
const snapshots = 7

// rmwStretch is how many accesses are timed.
const rmwStretch = 20_000_000

// held is keyed state with one value per key.
type held[V any] struct {
	keyed *state.Keyed[uint64]
	value state.Value[V]
}

// hold restores parts, or begins empty.
func hold[V any](backend statebackend.Backend, parts ...statebackend.RestoredPart) (held[V], error) {
	k, err := state.NewKeyed[uint64](state.Options{
		Operator: "bench", Range: allGroups, MaxParallelism: 128, Backend: backend, Dir: filepath.Join(*dir, "state"),
	})
	if err != nil {
		return held[V]{}, err
	}
	v, err := state.NewValue[V](k, "totals")
	if err != nil {
		return held[V]{}, err
	}
	return held[V]{k, v}, k.Backend().Restore(parts)
}

var allGroups = keygroup.RangeOf(0, 1, 128)

// update reads, modifies and writes the value of one key.
func update(h held[totals], key uint64) error {
	if err := h.keyed.SetCurrentKey(key); err != nil {
		return err
	}
	v, _, err := h.value.Get()
	if err != nil {
		return err
	}
	v.add(float64(key & 1023))
	return h.value.Set(v)
}

func holdTotals(backend statebackend.Backend) (held[totals], error) {
	h, err := hold[totals](backend)
	if err != nil {
		return h, err
	}
	for i := range *keys {
		if err := update(h, keyOf(i)); err != nil {
			return h, err
		}
	}
	return h, nil
}

func valueRMW() error {
	h, err := holdTotals(memory.New())
	if err != nil {
		return err
	}
	draws := uniform(drawCount, *keys)
	runtime.GC()
	started := time.Now()
	for i := range rmwStretch {
		if err := update(h, draws[i&(drawCount-1)]); err != nil {
			return err
		}
	}
	return report("updates_per_second=%.0f", rmwStretch/time.Since(started).Seconds())
}

// mapRMW is the baseline of valueRMW.
func mapRMW() error {
	m := make(map[uint64]totals, *keys)
	set := func(key uint64) {
		v := m[key]
		v.add(float64(key & 1023))
		m[key] = v
	}
	for i := range *keys {
		set(keyOf(i))
	}
	draws := uniform(drawCount, *keys)
	runtime.GC()
	started := time.Now()
	for i := range rmwStretch {
		set(draws[i&(drawCount-1)])
	}
	return report("updates_per_second=%.0f", rmwStretch/time.Since(started).Seconds())
}

// freezes is how many freezes of one state are timed.
const freezes = 101

// freeze reports the median and the longest freeze, each after enough writes
// that everything changed has to be made private again.
func freeze() error {
	h, err := holdTotals(memory.New())
	if err != nil {
		return err
	}
	draws := uniform(drawCount, *keys)
	var took []float64
	at := 0
	for range freezes {
		for range 10_000 {
			if err := update(h, draws[at&(drawCount-1)]); err != nil {
				return err
			}
			at++
		}
		started := time.Now()
		f, err := h.keyed.Backend().Freeze()
		took = append(took, time.Since(started).Seconds()*1000)
		if err != nil {
			return err
		}
		f.Release()
	}
	longest := took[0]
	for _, t := range took {
		longest = max(longest, t)
	}
	return report("median_ms=%.4f\nlongest_ms=%.4f", median(took), longest)
}

// duringSnapshot reports updates per second before a snapshot and while it is
// written to the checkpoint store on local disk.
func duringSnapshot() error {
	h, err := holdTotals(memory.New())
	if err != nil {
		return err
	}
	opener := open.New(open.Options{})
	defer opener.Close()
	store := checkpointstore.New(opener.Open)
	draws := uniform(drawCount, *keys)
	at := 0
	rate := func(isOver func(done int) bool) (float64, error) {
		const stretch = 10_000
		started, done := time.Now(), 0
		for !isOver(done) {
			for range stretch {
				if err := update(h, draws[at&(drawCount-1)]); err != nil {
					return 0, err
				}
				at++
			}
			done += stretch
		}
		return float64(done) / time.Since(started).Seconds(), nil
	}
	runtime.GC()
	if _, err := rate(func(done int) bool { return done >= 2_000_000 }); err != nil {
		return err
	}
	snapshot := func() (before, during float64, err error) {
		if before, err = rate(func(done int) bool { return done >= 3_000_000 }); err != nil {
			return 0, 0, err
		}
		f, err := h.keyed.Backend().Freeze()
		if err != nil {
			return 0, 0, err
		}
		var written atomic.Bool
		failed := make(chan error, 1)
		go func() {
			_, err := store.WriteState(context.Background(), checkpointstore.SavepointAt(*dir), checkpointstore.StateFile{}, 0, func(w io.Writer) error {
				_, _, err := f.WriteSnapshot(w)
				return err
			})
			f.Release()
			failed <- err
			written.Store(true)
		}()
		if during, err = rate(func(int) bool { return written.Load() }); err != nil {
			return 0, 0, err
		}
		if err := <-failed; err != nil {
			return 0, 0, fmt.Errorf("write the snapshot: %w", err)
		}
		return before, during, nil
	}
	var before, during []float64
	for range snapshots {
		b, d, err := snapshot()
		if err != nil {
			return err
		}
		before, during = append(before, b), append(during, d)
		fmt.Fprintf(os.Stderr, "snapshot: %.0f updates/s before, %.0f during\n", b, d)
	}
	return report("before_per_second=%.0f\nduring_per_second=%.0f", median(before), median(during))
}
