package driver

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/snapshot"
)

// files puts that many files of checkpoint 5 into the store.
func (w *world) files(t *testing.T, n int) []snapshot.StateHandle {
	t.Helper()
	base := objectstore.Sub(w.store, "chk/"+string(testJob))
	handles := make([]snapshot.StateHandle, n)
	for i := range handles {
		handles[i] = snapshot.StateHandle{Name: fmt.Sprintf("chk-5/1.1-0.%d.0", i), Size: 1}
		if _, err := base.PutIf(t.Context(), handles[i].Name, []byte("x"), objectstore.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	return handles
}

// left counts the files of checkpoints.
func (w *world) left(t *testing.T) int {
	t.Helper()
	n := 0
	for _, err := range w.store.List(t.Context(), "chk/") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// atClaim makes a machine that has these effects when the job is claimed.
func atClaim(effects ...coordinator.Effect) *machine {
	return &machine{react: func(event coordinator.Event) []coordinator.Effect {
		if _, ok := event.(coordinator.JobClaimed); ok {
			return effects
		}
		return nil
	}}
}

func checkpointAt(id ids.CheckpointID) (checkpointstore.Location, coordinator.CheckpointRef) {
	loc := checkpointstore.CheckpointLocation(testDir+"/chk", testJob, id)
	return loc, coordinator.CheckpointRef{ID: id, URI: loc.URI()}
}

// I4: all files go, also if that takes far longer than one try may, and though
// one of them cannot be deleted for a while.
func TestI4ManyFilesAreDeletedHoweverLongItTakes(t *testing.T) {
	const n = 8000
	_, ref := checkpointAt(5)
	for name, effect := range map[string]func([]snapshot.StateHandle) coordinator.Effect{
		"aborted": func(handles []snapshot.StateHandle) coordinator.Effect {
			return coordinator.DiscardHandles{Checkpoint: 5, Handles: handles}
		},
		"subsumed": func([]snapshot.StateHandle) coordinator.Effect { return coordinator.DiscardCheckpoint{Ref: ref} },
		"claimed": func([]snapshot.StateHandle) coordinator.Effect {
			return coordinator.DiscardCheckpoint{Ref: ref, Claimed: true}
		},
		"fenced": func([]snapshot.StateHandle) coordinator.Effect {
			return coordinator.SweepAttempts{Below: ids.AttemptID{Token: 2}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				handles := w.files(t, n)
				began := time.Now()
				w.fail(func(call faulty.Call) faulty.Fault {
					switch {
					case call.Op != faulty.Delete:
						return faulty.Fault{}
					case strings.HasSuffix(call.Name, handles[0].Name) && time.Since(began) < 5*time.Minute:
						return faulty.Fault{Before: objectstore.ErrDenied}
					}
					return faulty.Fault{Delay: time.Second}
				})
				d := w.start(atClaim(effect(handles)), &cluster{})
				defer d.Stop()
				time.Sleep(time.Hour)
				if left := w.left(t); left > 0 {
					t.Errorf("%d of %d files stay, after %d calls", left, n, w.count(faulty.Delete, "chk-5"))
				}
			})
		})
	}
}

// I4: an expired checkpoint that all its many subtasks acknowledge late takes no
// other deletion's place.
func TestI4LateAcknowledgementsDoNotPushOutOtherDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		loc, ref := checkpointAt(4)
		if _, err := w.points.PersistMetadata(t.Context(), loc, completed(4)); err != nil {
			t.Fatal(err)
		}
		var effects []coordinator.Effect
		for _, h := range w.files(t, 2*deletionsMax) {
			effects = append(effects, coordinator.DiscardHandles{Checkpoint: 5, Handles: []snapshot.StateHandle{h}})
		}
		w.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Delete {
				return faulty.Fault{Delay: 20 * time.Millisecond}
			}
			return faulty.Fault{}
		})
		d := w.start(atClaim(append(effects, coordinator.DiscardCheckpoint{Ref: ref})...), &cluster{})
		defer d.Stop()
		time.Sleep(time.Minute)
		if left := w.left(t); left > 0 {
			t.Errorf("%d files stay", left)
		}
	})
}

func TestWaitingDeletionsAreBounded(t *testing.T) {
	var bases []string
	d := newDeleter(func(_ context.Context, base string, handles []snapshot.StateHandle) ([]snapshot.StateHandle, error) {
		bases = append(bases, fmt.Sprint(base, " ", len(handles)))
		return nil, nil
	}, zap.NewNop())
	many := make([]snapshot.StateHandle, deletionHandlesMax-2, deletionHandlesMax)
	one := []snapshot.StateHandle{{Name: "one"}}
	d.enqueueFiles(filesOf{base: "a", handles: many})
	d.enqueueFiles(filesOf{base: "b", handles: one})
	d.enqueueFiles(filesOf{base: "a", handles: one})
	d.enqueueFiles(filesOf{base: "a", handles: one}) // too many
	if many[:deletionHandlesMax][len(many)].Name != "" {
		t.Error("the caller's slice was written to")
	}
	kept := 0
	for range deletionsMax {
		d.enqueue(deletion{what: "something", do: func(context.Context) (bool, error) {
			kept++
			return false, nil
		}})
	}
	d.finish()
	d.enqueueFiles(filesOf{base: "c", handles: one}) // too late
	d.run(t.Context())
	if want := []string{fmt.Sprint("a ", deletionHandlesMax-1), "b 1"}; !reflect.DeepEqual(bases, want) || kept != deletionsMax-2 {
		t.Errorf("deleted were %v, and %d others", bases, kept)
	}
	if d.mu.handles != 0 {
		t.Errorf("%d handles wait in an empty queue", d.mu.handles)
	}
}

// What waits takes more files; what is being deleted does not.
func TestWaitingFilesOfOneDirectoryAreDeletedTogether(t *testing.T) {
	var calls []string
	var d *deleter
	d = newDeleter(func(_ context.Context, base string, handles []snapshot.StateHandle) ([]snapshot.StateHandle, error) {
		for _, h := range handles {
			calls = append(calls, base+"/"+h.Name)
		}
		if len(calls) == 1 {
			for _, name := range []string{"2", "3"} {
				d.enqueueFiles(filesOf{base: base, handles: []snapshot.StateHandle{{Name: name}}})
			}
			d.finish()
		}
		calls = append(calls, "-")
		return nil, nil
	}, zap.NewNop())
	d.enqueueFiles(filesOf{base: "a", handles: []snapshot.StateHandle{{Name: "1"}}})
	d.run(t.Context())
	if want := []string{"a/1", "-", "a/2", "a/3", "-"}; !reflect.DeepEqual(calls, want) {
		t.Errorf("calls are %v, want %v", calls, want)
	}
}
