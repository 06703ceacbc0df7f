package checkpointstore

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/snapshot"
)

// incremental is a job that takes incremental checkpoints below root.
type incremental struct {
	t    *testing.T
	s    *Store
	open Opener
	root string
}

var firstAttempt = ids.AttemptID{Token: 1, Number: 1}

// upload writes a shared file for a checkpoint.
func (j incremental) upload(attempt ids.AttemptID, id ids.CheckpointID, seq uint32) snapshot.StateHandle {
	j.t.Helper()
	file := SharedFile{Attempt: attempt, Checkpoint: id, Seq: seq}
	handle, err := j.s.WriteShared(j.t.Context(), JobBase(j.root, jobA), file, func(w io.Writer) error {
		_, err := io.WriteString(w, "sst")
		return err
	})
	if err != nil {
		j.t.Fatal(err)
	}
	return handle
}

// publish stores a checkpoint whose keyed state is in the given files, and one
// private file.
func (j incremental) publish(attempt ids.AttemptID, id ids.CheckpointID, files ...snapshot.StateHandle) string {
	j.t.Helper()
	loc := CheckpointLocation(j.root, jobA, id)
	keyed := snapshot.KeyedStateHandle{
		Backend: "files", Range: keygroup.Range{First: 0, Last: 3},
		Files: []snapshot.StateFile{{
			Local:  "MANIFEST",
			Handle: writeState(j.t, j.s, loc, StateFile{Attempt: attempt}, 0, "manifest"),
		}},
	}
	for _, h := range files {
		keyed.Files = append(keyed.Files, snapshot.StateFile{Local: strings.ReplaceAll(h.Name, "/", "_"), Handle: h})
	}
	checkpoint := testCheckpoint()
	checkpoint.ID, checkpoint.Attempt = id, attempt
	checkpoint.Operators[1].Subtasks[0].Keyed = []snapshot.KeyedStateHandle{keyed}
	uri, err := j.s.PersistMetadata(j.t.Context(), loc, checkpoint)
	if err != nil {
		j.t.Fatal(err)
	}
	return uri
}

// mustShare compares the shared files that there are with the given ones.
func (j incremental) mustShare(want ...snapshot.StateHandle) {
	j.t.Helper()
	prefix := string(jobA) + "/"
	var got, wanted []string
	for _, name := range names(j.t, j.open, j.root) {
		if strings.HasPrefix(name, prefix+sharedDir) {
			got = append(got, strings.TrimPrefix(name, prefix))
		}
	}
	for _, h := range want {
		wanted = append(wanted, h.Name)
	}
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		j.t.Errorf("shared files are %v, want %v", got, wanted)
	}
}

func (j incremental) exists(uri string) bool {
	j.t.Helper()
	_, _, err := j.s.LoadMetadata(j.t.Context(), uri)
	if err != nil && !errors.Is(err, objectstore.ErrNotExist) {
		j.t.Fatal(err)
	}
	return err == nil
}

func TestMetadataWithFilesNamesTheFeature(t *testing.T) {
	checkpoint := testCheckpoint()
	checkpoint.Operators[1].Subtasks[0].Keyed[0] = snapshot.KeyedStateHandle{
		Backend: "files", Range: keygroup.Range{First: 0, Last: 3},
		Files: []snapshot.StateFile{{Local: "1.sst", Handle: snapshot.StateHandle{Name: "shared/1.1/7-1.0.0", Size: 3, SharedSince: 7}}},
	}
	content, err := EncodeMetadata(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	// What a reader of before says.
	before := []string{featureSplits, featureEndOfData}
	if _, err := openEnvelope(metadataMagic, before, content); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"state-files"`) {
		t.Errorf("an older reader says: %v", err)
	}
	read, err := DecodeMetadata(content)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, read, checkpoint)
	// And nothing changes for it where there are none.
	if content, err = EncodeMetadata(testCheckpoint()); err != nil {
		t.Fatal(err)
	}
	if _, err := openEnvelope(metadataMagic, before, content); err != nil {
		t.Errorf("canonical state: %v", err)
	}
}

// I4: the shared files of a subsumed checkpoint are not deleted with it.
func TestDiscardCheckpointLeavesSharedFiles(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		j := incremental{t, New(open), open, root}
		a := j.upload(firstAttempt, 1, 0)
		first := j.publish(firstAttempt, 1, a)
		j.publish(firstAttempt, 2, a)
		if err := j.s.DiscardCheckpoint(t.Context(), LocationOf(first)); err != nil {
			t.Fatal(err)
		}
		j.mustShare(a)
		if _, err := j.s.DiscardHandles(t.Context(), JobBase(root, jobA), []snapshot.StateHandle{a}); err != nil {
			t.Fatal(err)
		}
		j.mustShare()
	})
}

// I4: of the shared files of fenced attempts those stay that a kept checkpoint
// refers to, and no others.
func TestSweepOfSharedFiles(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		j := incremental{t, New(open), open, root}
		living := ids.AttemptID{Token: 2, Number: 1}
		a, b, c := j.upload(firstAttempt, 1, 0), j.upload(firstAttempt, 1, 1), j.upload(firstAttempt, 2, 0)
		j.publish(firstAttempt, 1, a, b)
		j.publish(firstAttempt, 2, a, c)
		j.upload(firstAttempt, 3, 0) // never published
		j.upload(firstAttempt, 3, 1)
		running := j.upload(living, 18, 0)
		request := SweepRequest{Base: JobBase(root, jobA), Below: living, Keep: []ids.CheckpointID{1, 2}, DeleteMax: 1}
		for _, want := range []SweepResult{{Deleted: 1, More: true}, {Deleted: 1}, {}} {
			if result, err := j.s.Sweep(t.Context(), request); err != nil || result != want {
				t.Errorf("swept %+v, %v, want %+v", result, err, want)
			}
		}
		j.mustShare(a, b, c, running)
		// 1 was dropped by a leader that went away before it deleted anything.
		request.Keep, request.DeleteMax = []ids.CheckpointID{2}, 0
		if result, err := j.s.Sweep(t.Context(), request); err != nil || result.Deleted != 3 {
			t.Errorf("swept %+v, %v", result, err)
		}
		j.mustShare(a, c, running)
		// The end of the job, with nothing kept.
		request.Keep, request.Below = nil, ids.AttemptID{Token: 3}
		if _, err := j.s.Sweep(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		mustHave(t, open, root)
	})
}

// I9: what a kept checkpoint refers to is not guessed. After a failed read no
// shared file is deleted; broken or missing metadata keeps what was uploaded
// until then.
func TestSweepDoesNotGuessReferences(t *testing.T) {
	inner := memory.New(memoryRoot)
	open := openMemory(inner)
	j := incremental{t, New(open), open, memoryRoot}
	a, b := j.upload(firstAttempt, 1, 0), j.upload(firstAttempt, 1, 1)
	j.publish(firstAttempt, 1, a)
	second := j.publish(firstAttempt, 2, a)
	c := j.upload(firstAttempt, 3, 0)
	request := SweepRequest{Base: JobBase(memoryRoot, jobA), Below: ids.AttemptID{Token: 2}, Keep: []ids.CheckpointID{1, 2}}
	broken := New(openMemory(faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.Read && strings.Contains(c.Name, "chk-2/") {
			return faulty.Fault{Before: objectstore.ErrUnavailable}
		}
		return faulty.Fault{}
	}, nil)))
	if _, err := broken.Sweep(t.Context(), request); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("failed read: %v", err)
	}
	j.mustShare(a, b, c)
	if _, err := broken.DiscardRetained(t.Context(), memoryRoot+"/"+string(jobA)+"/chk-1", Expected{}); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("failed read: %v", err)
	}
	j.mustShare(a, b, c)

	store, err := open(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), metadataName); err != nil {
		t.Fatal(err)
	}
	if result, err := j.s.Sweep(t.Context(), request); err != nil || result != (SweepResult{Deleted: 1, Left: 1}) {
		t.Errorf("swept %+v, %v", result, err)
	}
	j.mustShare(a, b)
	if _, err := store.PutIf(t.Context(), metadataName, []byte("broken"), objectstore.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if result, err := j.s.Sweep(t.Context(), request); err != nil || result != (SweepResult{Left: 1}) {
		t.Errorf("swept %+v, %v", result, err)
	}
	if left, err := j.s.DiscardRetained(t.Context(), memoryRoot+"/"+string(jobA)+"/chk-1", Expected{}); err != nil || left != 1 {
		t.Errorf("left %d, %v", left, err)
	}
	j.mustShare(a, b)
}

// FLINK-26985, FLINK-24611: the deletion of a claimed checkpoint takes exactly
// the shared files that no other one of its job refers to, and may be repeated.
func TestDiscardRetained(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		j := incremental{t, New(open), open, root}
		a, b, c, d := j.upload(firstAttempt, 1, 0), j.upload(firstAttempt, 1, 1), j.upload(firstAttempt, 2, 0), j.upload(firstAttempt, 3, 0)
		first := j.publish(firstAttempt, 1, a, b)
		second := j.publish(firstAttempt, 2, b, c)
		third := j.publish(firstAttempt, 3, c, d)
		orphan := j.upload(firstAttempt, 4, 0)
		for range 2 {
			if left, err := j.s.DiscardRetained(t.Context(), second, Expected{}); left != 0 || err != nil {
				t.Errorf("left %d, %v", left, err)
			}
		}
		if !j.exists(first) || j.exists(second) || !j.exists(third) {
			t.Error("another checkpoint is gone, or this one is not")
		}
		j.mustShare(a, b, c, d, orphan)
		if _, err := j.s.DiscardRetained(t.Context(), first+"/_metadata", Expected{}); err != nil {
			t.Fatal(err)
		}
		j.mustShare(c, d, orphan)
		if _, err := j.s.DisposeSavepoint(t.Context(), third, false); !errors.Is(err, ErrNoSavepoint) || !j.exists(third) {
			t.Errorf("a checkpoint is disposed of: %v", err)
		}
		disposed, err := j.s.DisposeSavepoint(t.Context(), third, true)
		if err != nil || disposed.ID != 3 {
			t.Errorf("disposed of %v, %v", disposed, err)
		}
		j.mustShare(orphan)
	})
}

// A path that something else has come to use since is not what was claimed.
func TestDiscardRetainedOfSomethingElse(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		j := incremental{t, New(open), open, root}
		a := j.upload(firstAttempt, 1, 0)
		uri := j.publish(firstAttempt, 1, a)
		is, _, err := j.s.LoadMetadata(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []Expected{
			{Job: jobB, ID: is.ID},
			{ID: is.ID + 1},
			{CompletedBy: is.CompletedAt.Add(-time.Millisecond)},
		} {
			if left, err := j.s.DiscardRetained(t.Context(), uri, other); !errors.Is(err, ErrUnexpected) || left != 0 {
				t.Errorf("expected %v: left %d, %v", other, left, err)
			}
			if !j.exists(uri) {
				t.Fatalf("expected %v: it is gone", other)
			}
			j.mustShare(a)
		}
		if _, err := j.s.DiscardRetained(t.Context(), uri, Expected{Job: is.Job, ID: is.ID, CompletedBy: is.CompletedAt}); err != nil || j.exists(uri) {
			t.Errorf("the one that was expected: %v", err)
		}
	})
}

// An interrupted deletion is completed by the next one: nothing stays for ever.
func TestDiscardRetainedAgainAfterAFailure(t *testing.T) {
	inner := memory.New(memoryRoot)
	open := openMemory(inner)
	j := incremental{t, New(open), open, memoryRoot}
	uri := j.publish(firstAttempt, 1, j.upload(firstAttempt, 1, 0), j.upload(firstAttempt, 1, 1))
	var failed sync.Map
	broken := New(openMemory(faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.Delete {
			if _, again := failed.LoadOrStore(c.Name, true); !again {
				return faulty.Fault{Before: objectstore.ErrUnavailable}
			}
		}
		return faulty.Fault{}
	}, nil)))
	failures := 0
	for ; failures < 10; failures++ {
		if _, err := broken.DiscardRetained(t.Context(), uri, Expected{}); err == nil {
			break
		}
	}
	if failures == 0 || failures == 10 {
		t.Errorf("%d failures", failures)
	}
	mustHave(t, open, memoryRoot)
}
