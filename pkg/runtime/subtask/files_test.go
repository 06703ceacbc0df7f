package subtask_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/filetest"
	heap "github.com/weirstream/weir/pkg/statebackend/memory"
)

// bed runs attempts of one job whose keyed state is in files.
type bed struct {
	t       *testing.T
	o       simjob.Options
	world   *simjob.World
	dir     string
	local   bool // keep local copies
	backend statebackend.Backend
	refuse  func(operator, local string) error // a file of the backend
	fault   func(faulty.Call) faulty.Fault     // a call of the store
	readers map[string]subtask.FileReader
	objects *memory.Store
	store   *checkpointstore.Store
	opened  int // objects
	attempt uint32
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, o: small(), world: simjob.NewWorld(), dir: t.TempDir(), objects: memory.New("/")}
	b.backend = &filetest.Backend{GroupsPerFile: 2, BeforeFile: func(operator, local string) error {
		if b.refuse == nil {
			return nil
		}
		return b.refuse(operator, local)
	}}
	root := faulty.New(b.objects, func(call faulty.Call) faulty.Fault {
		if call.Op == faulty.Open {
			b.opened++
		}
		if b.fault == nil {
			return faulty.Fault{}
		}
		return b.fault(call)
	}, nil)
	b.store = checkpointstore.New(func(uri string) (objectstore.Store, error) {
		return objectstore.Sub(root, strings.Trim(uri, "/")), nil
	})
	return b
}

// start starts the next attempt.
func (b *bed) start(from restorePoint) *rig {
	b.t.Helper()
	b.attempt++
	program, err := simjob.Program(b.o, b.world)
	if err != nil {
		b.t.Fatal(err)
	}
	from.unbounded = true
	return newRigWith(b.t, program, b.o, b.world, b.store, b.attempt, from, testCredit, func(c *subtask.Config) {
		c.Backend, c.Incremental, c.FileReaders = b.backend, true, b.readers
		c.Dir = filepath.Join(b.dir, fmt.Sprintf("attempt-%d", b.attempt), subtask.LocalName(c.Deployment.Subtask))
		if b.local {
			c.LocalDir = b.localDir()
		}
	})
}

func (b *bed) localDir() string { return filepath.Join(b.dir, "local") }

// checkpoint takes one of everything that there is to process.
func (b *bed) checkpoint(r *rig, id, base ids.CheckpointID) restorePoint {
	b.t.Helper()
	r.trigger(element.Barrier{Checkpoint: id, Base: base})
	r.run(nil)
	states := r.acks(id)
	if len(states) != len(r.order) {
		b.t.Fatalf("checkpoint %d: %d of %d subtasks acknowledge; declined: %q", id, len(states), len(r.order), declined(r, id))
	}
	return restorePoint{id: id, states: states}
}

func declined(r *rig, id ids.CheckpointID) []string {
	var reasons []string
	r.count(func(rep subtask.Report) bool {
		d, ok := rep.(subtask.DeclineReport)
		if ok && d.Checkpoint == id {
			reasons = append(reasons, d.Reason)
		}
		return ok
	})
	return reasons
}

// shared are the shared handles of a checkpoint, by subtask and the backend's name.
func shared(p restorePoint) map[string]snapshot.StateHandle {
	all := map[string]snapshot.StateHandle{}
	for _, st := range p.states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				for _, f := range k.Files {
					if f.Handle.IsShared() {
						all[fmt.Sprintf("%s %s", st.Subtask, f.Local)] = f.Handle
					}
				}
			}
		}
	}
	return all
}

// sharedSince counts the shared handles that were uploaded for a checkpoint.
func sharedSince(p restorePoint, id ids.CheckpointID) int {
	n := 0
	for _, h := range shared(p) {
		if h.SharedSince == id {
			n++
		}
	}
	return n
}

// restored sums up what the subtasks report to have read.
func restored(r *rig) (sum subtask.RestoredReport) {
	r.count(func(rep subtask.Report) bool {
		x, ok := rep.(subtask.RestoredReport)
		sum.FilesFetched += x.FilesFetched
		sum.FilesLocal += x.FilesLocal
		sum.BytesFetched += x.BytesFetched
		sum.BytesLocal += x.BytesLocal
		return ok
	})
	return sum
}

func (b *bed) exists(h snapshot.StateHandle) bool {
	r, err := b.store.OpenState(b.t.Context(), checkpointstore.JobBase("/ckpt", testJob), h)
	if err == nil {
		err = r.Close()
	}
	if err != nil && !errors.Is(err, objectstore.ErrNotExist) {
		b.t.Fatal(err)
	}
	return err == nil
}

func (b *bed) count() int {
	n := 0
	for _, err := range b.objects.List(b.t.Context(), "") {
		if err != nil {
			b.t.Fatal(err)
		}
		n++
	}
	return n
}

// TestFilesOfTheBaseAreReferredTo, and of no other checkpoint: whatever was
// notified, or not.
func TestFilesOfTheBaseAreReferredTo(t *testing.T) {
	b := newBed(t)
	r := b.start(restorePoint{})
	defer r.close()
	steps := 0
	r.run(func() bool { steps++; return steps > 60 })
	one := b.checkpoint(r, 1, 0)
	if n := sharedSince(one, 1); n == 0 || n != len(shared(one)) {
		t.Fatalf("checkpoint 1 uploaded %d of %d files", n, len(shared(one)))
	}
	r.run(nil)
	two := b.checkpoint(r, 2, 1)
	for name, h := range shared(two) {
		if before, has := shared(one)[name]; has && h.Name != before.Name || !has && h.SharedSince != 2 {
			t.Errorf("%s is %+v, in the base %+v", name, h, before)
		}
	}
	if n := sharedSince(two, 2); n == 0 {
		t.Error("nothing changed between the checkpoints: the test shows nothing")
	}
	three := b.checkpoint(r, 3, 2)
	if n := sharedSince(three, 3); n != 0 {
		t.Errorf("checkpoint 3 uploaded %d files that its base has", n)
	}
	if four := b.checkpoint(r, 4, 0); sharedSince(four, 4) != len(shared(four)) {
		t.Error("checkpoint 4 has no base and refers to files")
	}
	for _, id := range r.order {
		r.hosts[id].s.NotifyAborted(4)
	}
	if five := b.checkpoint(r, 5, 4); sharedSince(five, 5) != len(shared(five)) {
		t.Error("checkpoint 5 refers to files of one that was given up")
	}
	if six := b.checkpoint(r, 6, 5); sharedSince(six, 6) != 0 {
		t.Error("checkpoint 6 uploaded files that its base has")
	}
}

// TestSavepointsAreCanonical whatever the backend keeps its state in.
func TestSavepointsAreCanonical(t *testing.T) {
	b := newBed(t)
	r := b.start(restorePoint{})
	defer r.close()
	r.run(nil)
	b.checkpoint(r, 1, 0)
	r.trigger(element.Barrier{Checkpoint: 2, Base: 1, Savepoint: true, SavepointDir: "/save"})
	r.run(nil)
	states := r.acks(2)
	if len(states) != len(r.order) {
		t.Fatalf("declined: %q", declined(r, 2))
	}
	for _, st := range states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				if k.IsInFiles() || k.Handle.IsShared() {
					t.Errorf("subtask %s: %+v", st.Subtask, k)
				}
			}
		}
	}
}

// TestI2RestoreFromFiles: the state is that of the checkpoint, the restored
// files are a base, and nothing is left of what was brought.
func TestI2RestoreFromFiles(t *testing.T) {
	b := newBed(t)
	first := b.start(restorePoint{})
	steps := 0
	first.run(func() bool { steps++; return steps > 60 })
	b.checkpoint(first, 1, 0)
	first.complete(1)
	first.run(nil)
	two := b.checkpoint(first, 2, 1)
	first.close()

	second := b.start(two)
	second.run(nil)
	if r := restored(second); r.FilesFetched == 0 || r.FilesLocal != 0 || b.opened != r.FilesFetched {
		t.Errorf("read %+v, %d objects", r, b.opened)
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "attempt-2", "*", "restore-*")); len(left) > 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
	three := b.checkpoint(second, 3, 2)
	if n := sharedSince(three, 3); n != 0 {
		t.Errorf("checkpoint 3 uploaded %d files that it was restored from", n)
	}
	second.complete(3)
	second.run(nil)
	second.close()
	if left, err := filepath.Glob(filepath.Join(b.dir, "attempt-*", "*")); len(left) > 0 || err != nil {
		t.Errorf("closed subtasks left %v, %v", left, err)
	}
	if err := b.o.CheckOutput(b.world.Committed(), true); err != nil {
		t.Error(err)
	}
}

// TestRestoreOfAnotherBackendsFiles says what to do, unless they can be read.
func TestRestoreOfAnotherBackendsFiles(t *testing.T) {
	b := newBed(t)
	first := b.start(restorePoint{})
	first.run(nil)
	one := b.checkpoint(first, 1, 0)
	first.close()
	b.backend = heap.New()
	second := b.start(one)
	second.run(nil)
	failures := second.failures()
	second.close()
	if len(failures) == 0 || failures[0].Kind != coordinator.PermanentFailure {
		t.Fatalf("failures: %v", failures)
	}
	for _, part := range []string{`"filetest"`, `"memory"`, "savepoint", simjob.Counts, "checkpoint 1"} {
		if !strings.Contains(failures[0].Message, part) {
			t.Errorf("%s: has no %s", failures[0].Message, part)
		}
	}
	b.readers = map[string]subtask.FileReader{filetest.Name: filetest.Canonical}
	third := b.start(one)
	defer third.close()
	third.run(nil)
	two := b.checkpoint(third, 2, 1)
	third.complete(2)
	third.run(nil)
	if len(shared(two)) != 0 || len(third.failures()) != 0 {
		t.Errorf("%d shared files; failures %v", len(shared(two)), third.failures())
	}
	if err := b.o.CheckOutput(b.world.Committed(), true); err != nil {
		t.Error(err)
	}
}

// TestDamagedFileIsNamed with its subtask, operator and checkpoint.
func TestDamagedFileIsNamed(t *testing.T) {
	b := newBed(t)
	first := b.start(restorePoint{})
	first.run(nil)
	one := b.checkpoint(first, 1, 0)
	first.close()
	var broken string
	for name, h := range shared(one) {
		broken = name
		err := b.objects.Put(t.Context(), fmt.Sprintf("ckpt/%s/%s", testJob, h.Name), checkpointstore.FileContent(os.DevNull, 0))
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	second := b.start(one)
	defer second.close()
	second.run(nil)
	failures := second.failures()
	subtaskName, local, _ := strings.Cut(broken, " ")
	if len(failures) != 1 || failures[0].Kind != coordinator.CorruptCheckpoint {
		t.Fatalf("failures: %v", failures)
	}
	for _, part := range []string{subtaskName, local, simjob.Counts, "checkpoint 1", "were written"} {
		if !strings.Contains(failures[0].Message, part) {
			t.Errorf("%s: has no %s", failures[0].Message, part)
		}
	}
}

// TestWhatHindersASnapshotDeclinesIt, by name, and leaves nothing; the job runs
// on, and the next checkpoint succeeds when the cause is gone.
func TestWhatHindersASnapshotDeclinesIt(t *testing.T) {
	limit := errors.New("value of 5 GiB is over the limit of 4 GiB")
	for name, hinder := range map[string]struct {
		set  func(b *bed)
		want string
	}{
		"upload refused": {func(b *bed) {
			b.fault = func(c faulty.Call) faulty.Fault {
				// The second file of each subtask.
				if c.Op == faulty.Put && strings.Contains(c.Name, "/shared/") && strings.HasSuffix(c.Name, ".1") {
					return faulty.Fault{Before: objectstore.ErrDenied}
				}
				return faulty.Fault{}
			}
		}, objectstore.ErrDenied.Error()},
		"disk full": {func(b *bed) {
			b.refuse = func(_, local string) error {
				if local == "MANIFEST" {
					return syscall.ENOSPC
				}
				return nil
			}
		}, syscall.ENOSPC.Error()},
		"value over a limit": {func(b *bed) { b.refuse = func(_, _ string) error { return limit } }, limit.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.local = true
			r := b.start(restorePoint{})
			defer r.close()
			steps := 0
			r.run(func() bool { steps++; return steps > 60 })
			one := b.checkpoint(r, 1, 0)
			before := b.count()
			r.run(nil)
			hinder.set(b)
			r.trigger(element.Barrier{Checkpoint: 2, Base: 0})
			r.run(nil)
			reasons := declined(r, 2)
			if len(reasons) == 0 {
				t.Fatal("nobody declines")
			}
			for _, part := range []string{simjob.Counts, "subtask 1/", "file", hinder.want} {
				if !strings.Contains(reasons[0], part) {
					t.Errorf("%s: has no %s", reasons[0], part)
				}
			}
			var acked []snapshot.StateHandle
			for _, st := range r.acks(2) {
				st.EachHandle(func(h snapshot.StateHandle) { acked = append(acked, h) })
			}
			if _, err := b.store.DiscardHandles(t.Context(), checkpointstore.JobBase("/ckpt", testJob), acked); err != nil {
				t.Fatal(err)
			}
			if n := b.count(); n != before {
				t.Errorf("%d objects, %d before the checkpoint that was declined", n, before)
			}
			for _, h := range shared(one) {
				if !b.exists(h) {
					t.Errorf("file %s of the published checkpoint is gone", h.Name)
				}
			}
			b.fault, b.refuse = nil, nil
			three := b.checkpoint(r, 3, 1)
			if sharedSince(three, 2) != 0 || len(r.failures()) != 0 {
				t.Errorf("checkpoint 3 has %d files of 2; failures %v", sharedSince(three, 2), r.failures())
			}
		})
	}
}

// TestRestartOnTheSameHostFetchesNothing, and damaged copies are not used.
func TestRestartOnTheSameHostFetchesNothing(t *testing.T) {
	b := newBed(t)
	b.local = true
	first := b.start(restorePoint{})
	steps := 0
	first.run(func() bool { steps++; return steps > 60 })
	b.checkpoint(first, 1, 0)
	first.complete(1)
	first.run(nil)
	two := b.checkpoint(first, 2, 1)
	first.complete(2)
	first.close()

	second := b.start(two)
	second.run(nil)
	r := restored(second)
	if r.FilesFetched != 0 || r.BytesFetched != 0 || r.FilesLocal == 0 || r.BytesLocal == 0 || b.opened != 0 {
		t.Errorf("read %+v and %d objects, want everything from local disk", r, b.opened)
	}
	all := r.FilesLocal
	second.close()

	// A link that is too short, a copy with a wrong byte, a manifest without its end.
	damage := map[string]func(path string){
		"a link is cut": func(string) {
			for _, h := range shared(two) {
				if err := os.Truncate(b.localCopy(h), h.Size-1); err != nil {
					t.Fatal(err)
				}
				return
			}
		},
		"a copy is changed": func(string) {
			h := private(two)
			content, err := os.ReadFile(b.localCopy(h))
			if err != nil {
				t.Fatal(err)
			}
			content[0]++
			if err := os.WriteFile(b.localCopy(h), content, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	broken := 0
	for _, name := range []string{"a link is cut", "a copy is changed"} {
		damage[name]("")
		broken++
		next := b.start(two)
		next.run(nil)
		if r := restored(next); r.FilesFetched != broken || r.FilesLocal != all-broken || len(next.failures()) != 0 {
			t.Errorf("%s: read %+v of %d; failures %v", name, r, all, next.failures())
		}
		next.close()
	}
	// A link of the right size with other bytes is noticed by the backend, once.
	for _, h := range shared(two) {
		path := b.localCopy(h)
		content, err := os.ReadFile(path)
		if err != nil || len(content) == 0 {
			continue // cut or fetched before
		}
		// Not through the link: its other names are the backend's.
		if err := errors.Join(os.Remove(path), os.WriteFile(path, bytes.Repeat([]byte{0xff}, len(content)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	misled := b.start(two)
	misled.run(nil)
	for _, f := range misled.failures() {
		if f.Kind != coordinator.LostProcess {
			t.Errorf("restored from broken copies: %v", f)
		}
	}
	if len(misled.failures()) == 0 {
		t.Error("nobody noticed broken copies")
	}
	misled.close()
	again := b.start(two)
	again.run(nil)
	if r := restored(again); len(again.failures()) != 0 || r.FilesFetched == 0 {
		t.Errorf("after broken copies: read %+v, failures %v", r, again.failures())
	}
	again.close()
	manifests, err := filepath.Glob(filepath.Join(b.localDir(), "*", "chk-2"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests %v, %v", manifests, err)
	}
	for _, m := range manifests {
		if err := os.Truncate(m, 20); err != nil {
			t.Fatal(err)
		}
	}
	last := b.start(two)
	defer last.close()
	last.run(nil)
	if r := restored(last); r.FilesLocal != 0 || r.FilesFetched != all {
		t.Errorf("with half manifests: read %+v, want %d from the store", r, all)
	}
	b.checkpoint(last, 3, 2)
	last.complete(3)
	last.run(nil)
	if err := b.o.CheckOutput(b.world.Committed(), true); err != nil {
		t.Error(err)
	}
}

// private is a handle of a checkpoint that is a file and not shared.
func private(p restorePoint) (h snapshot.StateHandle) {
	for _, st := range p.states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				for _, f := range k.Files {
					if !f.Handle.IsShared() && !f.Handle.IsInline() {
						h = f.Handle
					}
				}
			}
		}
	}
	return h
}

// localCopy is where the copy of an object is.
func (b *bed) localCopy(h snapshot.StateHandle) string {
	found, err := filepath.Glob(filepath.Join(b.localDir(), "*", "files", strings.ReplaceAll(h.Name, "/", "%")))
	if err != nil || len(found) != 1 {
		b.t.Fatalf("copies of %s: %v, %v", h.Name, found, err)
	}
	return found[0]
}

// TestLocalCopiesAreBounded: those of the last checkpoints stay.
func TestLocalCopiesAreBounded(t *testing.T) {
	b := newBed(t)
	b.local = true
	r := b.start(restorePoint{})
	var last restorePoint
	for id := ids.CheckpointID(1); id <= 8; id++ {
		steps := 0
		r.run(func() bool { steps++; return steps > 20 })
		last = b.checkpoint(r, id, 0) // each uploads all
		if id%2 == 0 {
			r.complete(id)
		}
	}
	r.close()
	sets, err := filepath.Glob(filepath.Join(b.localDir(), "1.0", "chk-*"))
	if err != nil || len(sets) != 3 {
		t.Errorf("sets %v, %v: want those of 6, 7 and 8", sets, err)
	}
	files, err := filepath.Glob(filepath.Join(b.localDir(), "*", "files", "*"))
	of := map[string]bool{}
	for _, f := range files {
		_, name, _ := strings.Cut(filepath.Base(f), "%")
		_, name, _ = strings.Cut(name, "%")
		checkpoint, _, _ := strings.Cut(name, "-")
		if strings.HasPrefix(filepath.Base(f), "shared") {
			of[checkpoint] = true
		}
	}
	if err != nil || len(of) != 3 || !of["6"] || !of["7"] || !of["8"] {
		t.Errorf("files of checkpoints %v, %v", of, err)
	}
	// The next attempt begins with a set of its own.
	next := b.start(last)
	defer next.close()
	next.run(nil)
	b.checkpoint(next, 20, 8)
	sets, err = filepath.Glob(filepath.Join(b.localDir(), "1.0", "chk-*"))
	if err != nil || len(sets) != 2 {
		t.Errorf("sets %v, %v: want those of 8 and 20", sets, err)
	}
}

// TestSeveralFilesAreCarriedAtOnce through Config.Each, and all are numbered
// as without.
func TestSeveralFilesAreCarriedAtOnce(t *testing.T) {
	b := newBed(t)
	program, err := simjob.Program(b.o, b.world)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	r := newRigWith(t, program, b.o, b.world, b.store, 1, restorePoint{unbounded: true}, testCredit, func(c *subtask.Config) {
		c.Backend, c.Incremental, c.Dir = b.backend, true, filepath.Join(b.dir, subtask.LocalName(c.Deployment.Subtask))
		c.Each = func(n int, do func(int) error) error {
			calls++
			var err error
			for i := n - 1; i >= 0; i-- {
				err = errors.Join(err, do(i))
			}
			return err
		}
	})
	defer r.close()
	r.run(nil)
	one := b.checkpoint(r, 1, 0)
	if calls == 0 {
		t.Error("Each was not called")
	}
	for _, st := range one.states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				for i, f := range k.Files {
					if f.Handle.IsShared() && !strings.HasSuffix(f.Handle.Name, fmt.Sprintf(".%d", i)) {
						t.Errorf("file %d of subtask %s is %s", i, st.Subtask, f.Handle.Name)
					}
				}
			}
		}
	}
	if _, err := b.store.ReadState(context.Background(), checkpointstore.JobBase("/ckpt", testJob), private(one)); err != nil {
		t.Error(err)
	}
}

// TestI2RestoreFromFilesAtAnotherParallelism: each subtask brings the parts
// that touch its key groups, and knows the files again that it took over whole.
func TestI2RestoreFromFilesAtAnotherParallelism(t *testing.T) {
	b := newBed(t)
	first := b.start(restorePoint{})
	steps := 0
	first.run(func() bool { steps++; return steps > 60 })
	one := b.checkpoint(first, 1, 0)
	first.complete(1)
	first.close()
	b.o.CountParallelism = 2
	merged := restorePoint{id: 1}
	for _, st := range one.states {
		if st.Subtask.Vertex != 1 {
			merged.states = append(merged.states, st)
		}
	}
	for i := range b.o.CountParallelism {
		own := keygroup.RangeOf(i, b.o.CountParallelism, b.o.MaxParallelism)
		state := snapshot.OperatorSubtaskState{UID: simjob.Counts}
		for _, st := range one.states {
			for _, op := range st.Operators {
				for _, k := range op.Keyed {
					if _, touches := k.Range.Intersect(own); touches {
						state.Keyed = append(state.Keyed, k)
					}
				}
			}
		}
		if len(state.Keyed) != 2 {
			t.Fatalf("subtask %d takes over %d parts, want 2", i, len(state.Keyed))
		}
		merged.states = append(merged.states, snapshot.SubtaskState{
			Subtask: ids.SubtaskID{Vertex: 1, Index: int32(i)}, Operators: []snapshot.OperatorSubtaskState{state},
		})
	}
	second := b.start(merged)
	defer second.close()
	// Before anything is read, so that no file has changed.
	for _, id := range second.order {
		second.doWork(second.hosts[id])
	}
	two := b.checkpoint(second, 2, 1)
	again := 0
	of := map[string]bool{}
	for _, h := range shared(one) {
		of[h.Name] = true
	}
	for name, h := range shared(two) {
		if h.SharedSince == 1 {
			again++
			if !of[h.Name] {
				t.Errorf("%s refers to %s, which checkpoint 1 does not have", name, h.Name)
			}
		}
	}
	if again == 0 {
		t.Errorf("of the %d files of checkpoint 2 none is of checkpoint 1", len(shared(two)))
	}
	second.complete(2)
	second.run(nil)
	b.checkpoint(second, 3, 2)
	second.complete(3)
	second.run(nil)
	if err := b.o.CheckOutput(b.world.Committed(), true); err != nil {
		t.Error(err)
	}
}
