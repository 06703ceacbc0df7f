package subtask_test

import (
	"bytes"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
)

// TestI9RestoreWithoutAllOfTheStateFailsByName: a job never starts with part of
// its state. A file that is gone is named and cannot be cured by a restart; a
// store that does not answer says nothing about the file.
func TestI9RestoreWithoutAllOfTheStateFailsByName(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	objects := memory.New("/ckpt")
	var fault faulty.Fault
	store := checkpointstore.New(func(string) (objectstore.Store, error) {
		return faulty.New(objects, func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Open {
				return fault
			}
			return faulty.Fault{}
		}, nil), nil
	})
	r := newRig(t, o, world, store, 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 60 })
	r.trigger(element.Barrier{Checkpoint: 1})
	r.run(func() bool { return len(r.acks(1)) == len(r.order) })
	states := r.acks(1)
	r.close()
	var missing string
	for _, st := range states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				missing = k.Handle.Name
			}
		}
	}
	restore := func() (running int, failures []coordinator.Failure) {
		next := newRig(t, o, world, store, 2, restorePoint{id: 1, states: states})
		for _, id := range next.order {
			next.doWork(next.hosts[id])
		}
		running = next.count(func(r subtask.Report) bool {
			s, ok := r.(subtask.StatusReport)
			return ok && s.Status == coordinator.Running
		})
		failures = next.failures()
		next.close()
		return running, failures
	}

	fault = faulty.Fault{Before: objectstore.ErrUnavailable}
	if _, failures := restore(); len(failures) == 0 || failures[0].Kind != coordinator.LostProcess {
		t.Errorf("while the store is away: %v, want failures that are restarted from for ever", failures)
	}
	fault = faulty.Fault{}
	content, _, err := objects.Read(t.Context(), missing, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	// A host that sees nothing of the checkpoint, not even what the JobManager
	// has just read, cannot tell that a file of it is missing.
	if _, failures := restore(); len(failures) != 1 || failures[0].Kind != coordinator.LostProcess ||
		!strings.Contains(failures[0].Message, "mounted?") || !strings.Contains(failures[0].Message, missing) {
		t.Errorf("where nothing of the checkpoint is: %v, want a failure that is restarted from for ever and names %s", failures, missing)
	}
	put(t, objects, "chk-1/_metadata", nil)
	fault = faulty.Fault{Before: objectstore.ErrDenied}
	if _, failures := restore(); len(failures) == 0 || failures[0].Kind != coordinator.LostProcess {
		t.Errorf("while the store denies access: %v, want failures that are restarted from for ever", failures)
	}
	fault = faulty.Fault{}
	running, failures := restore()
	if len(failures) != 1 || running != len(states)-1 || failures[0].Kind != coordinator.CorruptCheckpoint || !strings.Contains(failures[0].Message, missing) {
		t.Errorf("%d of %d subtasks run; failures %v, want one of a corrupt checkpoint that names %s", running, len(states), failures, missing)
	}

	// The same when the bytes are not what was written, or not all of them.
	flipped := bytes.Clone(content)
	flipped[len(flipped)/2] ^= 1
	for text, stored := range map[string][]byte{"checksum is": flipped, "bytes": content[:len(content)-1]} {
		put(t, objects, missing, stored)
		if _, failures := restore(); len(failures) != 1 || failures[0].Kind != coordinator.CorruptCheckpoint ||
			!strings.Contains(failures[0].Message, missing) || !strings.Contains(failures[0].Message, text) || !strings.Contains(failures[0].Message, "checkpoint 1") {
			t.Errorf("failures %v, want one of a corrupt checkpoint that says %q of %s", failures, text, missing)
		}
	}
	put(t, objects, missing, content)
	if running, failures := restore(); running != len(states) {
		t.Errorf("%d of %d subtasks run with the file as it was: %v", running, len(states), failures)
	}
}

// One bad read is not believed: the file is read again.
func TestCorruptReadIsTriedAgain(t *testing.T) {
	objects := memory.New("/ckpt")
	put(t, objects, "chk-1/f", []byte("state"))
	reads := 0
	broken := faulty.New(objects, func(call faulty.Call) faulty.Fault {
		if call.Op == faulty.Open {
			if reads++; reads == 1 {
				return faulty.Fault{Before: objectstore.ErrNotExist}
			}
		}
		return faulty.Fault{}
	}, nil)
	store := checkpointstore.New(func(string) (objectstore.Store, error) { return broken, nil })
	h := snapshot.StateHandle{Name: "chk-1/f", Size: 5, CRC32C: crc32.Checksum([]byte("state"), crc32.MakeTable(crc32.Castagnoli))}
	data, err := subtask.ReadRestored(t.Context(), store, "/ckpt", 1, h)
	if err != nil || string(data) != "state" || reads != 2 {
		t.Errorf("%d reads, %q, %v: want the state at the second", reads, data, err)
	}
}

func put(t *testing.T, objects objectstore.Store, name string, content []byte) {
	t.Helper()
	err := objects.Put(t.Context(), name, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestADrainedSourceIsNotReadOn: event time has come to its end in a drained
// savepoint. A restore of it is at the end of data, whatever was left to read.
func TestADrainedSourceIsNotReadOn(t *testing.T) {
	o, world, store := small(), simjob.NewWorld(), newStore(t)
	r := newRig(t, o, world, store, 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 30 })
	r.trigger(element.Barrier{Checkpoint: 1, Stop: true, Drain: true})
	r.run(func() bool { return len(r.acks(1)) == len(r.order) })
	states := r.acks(1)
	var read int64
	for _, id := range r.order {
		if id.Vertex == 0 {
			read += r.hosts[id].s.Metrics().RecordsIn
		}
	}
	r.close()
	if all := int64(o.Splits) * int64(o.RecordsPerSplit); len(states) != len(r.order) || read == 0 || read == all {
		t.Fatalf("%d of %d acknowledged when %d of %d records were read", len(states), len(r.order), read, all)
	}

	r = newRig(t, o, world, store, 2, restorePoint{id: 1, states: states})
	r.run(func() bool { return r.count(isEndOfData) == len(r.order) })
	for _, id := range r.order {
		if n := r.hosts[id].s.Metrics().RecordsIn; n != 0 {
			t.Errorf("subtask %s has %d records after the restore", id, n)
		}
	}
	if n := r.count(isEndOfData); n != len(r.order) {
		t.Errorf("%d of %d subtasks are at the end of data; failures %v", n, len(r.order), r.failures())
	}
	r.close()
}
