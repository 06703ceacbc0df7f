package checkpointstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/local"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/snapshot"
)

// memoryRoot is where the memory store of a test lives.
const memoryRoot = "mem://test"

// openMemory opens URIs below memoryRoot in one store.
func openMemory(root objectstore.Store) Opener {
	return func(uri string) (objectstore.Store, error) { return objectstore.SubURI(root, uri) }
}

func openLocal(uri string) (objectstore.Store, error) { return local.New(uri, uri) }

// eachStore runs a test over memory and disk; root is a directory of the store.
func eachStore(t *testing.T, test func(t *testing.T, open Opener, root string)) {
	t.Run("memory", func(t *testing.T) { test(t, openMemory(memory.New(memoryRoot)), memoryRoot) })
	t.Run("local", func(t *testing.T) { test(t, openLocal, t.TempDir()) })
}

func fileOf(token ids.FencingToken, number uint32, seq uint32) StateFile {
	return StateFile{Attempt: ids.AttemptID{Token: token, Number: number}, Seq: seq}
}

func writeState(t *testing.T, s *Store, loc Location, file StateFile, inlineMax int, content string) snapshot.StateHandle {
	t.Helper()
	handle, err := s.WriteState(t.Context(), loc, file, inlineMax, func(w io.Writer) error {
		for _, c := range []byte(content) {
			if _, err := w.Write([]byte{c}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func names(t *testing.T, open Opener, root string) []string {
	t.Helper()
	store, err := open(root)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for object, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, object.Name)
	}
	return found
}

func mustHave(t *testing.T, open Opener, root string, want ...string) {
	t.Helper()
	if got := names(t, open, root); !slices.Equal(got, want) {
		t.Errorf("store has\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestStateRoundTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		s := New(open)
		loc := CheckpointLocation(root, jobA, 7)
		for i, test := range []struct {
			content   string
			inlineMax int
			isInline  bool
		}{
			{"", 0, true},
			{"x", 0, false},
			{"0123456789", 9, false},
			{"0123456789", 10, true},
			{"0123456789", 11, true},
			{"", 100, true},
			{"x", -1, false},
		} {
			handle := writeState(t, s, loc, fileOf(1, 1, uint32(i)), test.inlineMax, test.content)
			if handle.IsInline() != test.isInline || handle.Size != int64(len(test.content)) {
				t.Errorf("%q with threshold %d gave %+v", test.content, test.inlineMax, handle)
			}
			content, err := s.ReadState(t.Context(), loc.Base, handle)
			if err != nil || string(content) != test.content {
				t.Errorf("%q was read as %q, error %v", test.content, content, err)
			}
		}
		dir := string(jobA) + "/chk-7/"
		mustHave(t, open, root, dir+"1.1-0.0.1", dir+"1.1-0.0.2", dir+"1.1-0.0.6")
	})
}

// A state file that is not what was written is named, and nothing of it is
// taken for state.
func TestCorruptStateNamesFile(t *testing.T) {
	s := New(openLocal)
	root := t.TempDir()
	loc := CheckpointLocation(root, jobA, 7)
	handle := writeState(t, s, loc, fileOf(1, 1, 0), 0, "0123456789")
	path := filepath.Join(loc.URI(), "1.1-0.0.0")
	for _, content := range []string{"0123456780", "012345678", "01234567890", ""} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := s.ReadState(t.Context(), loc.Base, handle)
		if !errors.Is(err, ErrCorrupt) || got != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q was read as %q, error %v", content, got, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadState(t.Context(), loc.Base, handle); !errors.Is(err, objectstore.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	handle = writeState(t, s, loc, fileOf(1, 1, 1), 100, "inline")
	handle.Inline = []byte("inlime")
	if _, err := s.ReadState(t.Context(), loc.Base, handle); !errors.Is(err, ErrCorrupt) {
		t.Errorf("inline: %v", err)
	}
}

func TestWriteStateFails(t *testing.T) {
	broken := errors.New("broken on purpose")
	eachStore(t, func(t *testing.T, open Opener, root string) {
		s := New(open)
		for _, before := range []string{"", "some bytes"} {
			_, err := s.WriteState(t.Context(), CheckpointLocation(root, jobA, 7), fileOf(1, 1, 0), 4, func(w io.Writer) error {
				if _, err := io.WriteString(w, before); err != nil {
					return err
				}
				return broken
			})
			if !errors.Is(err, broken) {
				t.Errorf("WriteState: %v", err)
			}
		}
		mustHave(t, open, root)
	})
}

func testCheckpoint() *snapshot.CompletedCheckpoint {
	return &snapshot.CompletedCheckpoint{
		Job: jobA, ID: 7, Attempt: ids.AttemptID{Token: 3, Number: 1}, Kind: snapshot.Checkpoint, JobName: "flights",
		TriggeredAt: time.UnixMilli(1_700_000_000_000).UTC(), CompletedAt: time.UnixMilli(1_700_000_000_123).UTC(),
		Operators: []snapshot.OperatorState{
			{UID: "flights", Parallelism: 2, MaxParallelism: 4, Subtasks: []snapshot.OperatorSubtaskState{
				{UID: "flights", Lists: []snapshot.OperatorStateHandle{{
					Name: "splits", Redistribution: snapshot.ByIndex, Elements: []int64{2, 1}, Indexes: []int64{0, 2},
					Handle: snapshot.StateHandle{Size: 3, CRC32C: 0x1234, Inline: []byte("abc")},
				}}},
				{UID: "flights"},
			}},
			{UID: "delays", Parallelism: 1, MaxParallelism: 4, Subtasks: []snapshot.OperatorSubtaskState{
				{UID: "delays", Keyed: []snapshot.KeyedStateHandle{{
					Handle: snapshot.StateHandle{Name: "chk-7/3.1-1.0.0", Size: 100, CRC32C: math.MaxUint32},
					Range:  keygroup.Range{First: 0, Last: 3}, Offsets: []int64{0, 10, 10, 60, 100},
					States: []snapshot.StateMeta{{Name: "stats", Kind: "value", Codec: "struct/1", Schema: "{n int64}", KeySchema: "string"}},
				}}},
			}},
		},
		Splits:     []snapshot.SplitList{{UID: "flights", Complete: true, Splits: []snapshot.Split{{Data: []byte("f:0-10")}, {}, {Data: []byte("f:20-30")}}}},
		EndOfData:  []snapshot.EndedSubtask{{UID: "flights", Index: 1}},
		Savepoints: []ids.CheckpointID{3, 5},
	}
}

func TestMetadataPersistAndLoad(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		s := New(open)
		checkpoint := testCheckpoint()
		for _, test := range []struct {
			kind snapshot.Kind
			loc  Location
			uri  string
		}{
			{snapshot.Checkpoint, CheckpointLocation(root, jobA, 7), root + "/" + string(jobA) + "/chk-7"},
			{snapshot.FinalCheckpoint, CheckpointLocation(root, jobA, 8), root + "/" + string(jobA) + "/chk-8"},
			{snapshot.Savepoint, SavepointLocation(root+"/sp", jobA, 7), root + "/sp/savepoint-" + string(jobA) + "-7"},
			{snapshot.StopSavepoint, SavepointLocation(root+"/sp", jobA, 8), root + "/sp/savepoint-" + string(jobA) + "-8"},
		} {
			checkpoint.Kind = test.kind
			for range 2 { // it may be repeated
				uri, err := s.PersistMetadata(t.Context(), test.loc, checkpoint)
				if err != nil || uri != test.uri {
					t.Fatalf("persisted as %s, error %v, want %s", uri, err, test.uri)
				}
			}
			for _, name := range []string{test.uri, test.uri + "/", test.uri + "/_metadata"} {
				loaded, base, err := s.LoadMetadata(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if base != test.loc.Base {
					t.Errorf("%s: base is %s, want %s", name, base, test.loc.Base)
				}
				mustEqual(t, loaded, checkpoint)
			}
			other := testCheckpoint()
			other.Kind, other.JobName = test.kind, "other"
			if _, err := s.PersistMetadata(t.Context(), test.loc, other); !errors.Is(err, objectstore.ErrPrecondition) {
				t.Errorf("other content was accepted: %v", err)
			}
		}
		if _, _, err := s.LoadMetadata(t.Context(), root+"/nothing"); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("missing checkpoint: %v", err)
		}
	})
}

// I10: a write of metadata whose reply is lost succeeded, one that never
// arrived is unknown, and neither is a failure that would justify deleting.
func TestMetadataWithUnknownOutcome(t *testing.T) {
	var fault faulty.Fault
	inner := memory.New(memoryRoot)
	store := faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.PutIf {
			return fault
		}
		return faulty.Fault{}
	}, nil)
	s := New(openMemory(store))
	loc := CheckpointLocation(memoryRoot, jobA, 7)
	fault = faulty.Fault{Before: objectstore.ErrUnknownOutcome}
	if _, err := s.PersistMetadata(t.Context(), loc, testCheckpoint()); !errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("lost request: %v", err)
	}
	fault = faulty.Fault{After: faulty.ErrInjected}
	if _, err := s.PersistMetadata(t.Context(), loc, testCheckpoint()); err != nil {
		t.Errorf("lost reply: %v", err)
	}
}

// I4: a state file whose write had an unknown outcome is removed: nobody else
// hears of it.
func TestStateWithUnknownOutcomeIsRemoved(t *testing.T) {
	inner := memory.New(memoryRoot)
	store := faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.Put {
			return faulty.Fault{After: faulty.ErrInjected}
		}
		return faulty.Fault{}
	}, nil)
	s := New(openMemory(store))
	_, err := s.WriteState(t.Context(), CheckpointLocation(memoryRoot, jobA, 7), fileOf(1, 1, 0), 0, func(w io.Writer) error {
		_, err := io.WriteString(w, "state")
		return err
	})
	if !errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("WriteState: %v", err)
	}
	for object := range inner.List(t.Context(), "") {
		t.Errorf("%s stays behind", object.Name)
	}
}

// Savepoints name their files relative to themselves.
func TestSavepointCanBeMoved(t *testing.T) {
	s := New(openLocal)
	root := t.TempDir()
	loc := SavepointLocation(root, jobA, 9)
	handle := writeState(t, s, loc, fileOf(3, 1, 0), 0, "state")
	checkpoint := testCheckpoint()
	checkpoint.Kind, checkpoint.ID = snapshot.Savepoint, 9
	checkpoint.Operators[1].Subtasks[0].Keyed[0].Handle = handle
	checkpoint.Operators[1].Subtasks[0].Keyed[0].Offsets = []int64{0, 1, 2, 3, 5}
	uri, err := s.PersistMetadata(t.Context(), loc, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(uri, moved); err != nil {
		t.Fatal(err)
	}
	loaded, base, err := s.LoadMetadata(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	content, err := s.ReadState(t.Context(), base, loaded.Operators[1].Subtasks[0].Keyed[0].Handle)
	if err != nil || string(content) != "state" {
		t.Errorf("state is %q, error %v", content, err)
	}
}

// I4: what is discarded is gone, directories included, and nothing else is.
func TestDiscardCheckpoint(t *testing.T) {
	root := t.TempDir()
	s := New(openLocal)
	for _, loc := range []Location{
		CheckpointLocation(root, jobA, 7), CheckpointLocation(root, jobA, 70), CheckpointLocation(root, jobB, 7), SavepointLocation(root, jobA, 7),
	} {
		writeState(t, s, loc, fileOf(1, 1, 0), 0, "x")
		checkpoint := testCheckpoint()
		if loc.Dir == "" {
			checkpoint.Kind = snapshot.Savepoint
		}
		if _, err := s.PersistMetadata(t.Context(), loc, checkpoint); err != nil {
			t.Fatal(err)
		}
	}
	foreign := filepath.Join(root, "savepoint-"+string(jobA)+"-7", "notes.txt")
	if err := os.WriteFile(foreign, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be repeated
		if err := s.DiscardCheckpoint(t.Context(), CheckpointLocation(root, jobA, 7)); err != nil {
			t.Fatal(err)
		}
		if err := s.DiscardCheckpoint(t.Context(), SavepointLocation(root, jobA, 7)); err != nil {
			t.Fatal(err)
		}
	}
	mustHave(t, openLocal, root,
		string(jobB)+"/chk-7/1.1-0.0.0", string(jobB)+"/chk-7/_metadata",
		string(jobA)+"/chk-70/1.1-0.0.0", string(jobA)+"/chk-70/_metadata",
		"savepoint-"+string(jobA)+"-7/notes.txt")
	if err := s.DiscardCheckpoint(t.Context(), CheckpointLocation(root, jobB, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, string(jobB))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty directory of a job stays behind: %v", err)
	}
}

func TestDiscardHandles(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		s := New(open)
		loc := CheckpointLocation(root, jobA, 7)
		first := writeState(t, s, loc, fileOf(1, 1, 0), 0, "a")
		inline := writeState(t, s, loc, fileOf(1, 1, 1), 9, "b")
		writeState(t, s, loc, fileOf(1, 1, 2), 0, "c")
		last := writeState(t, s, loc, fileOf(1, 1, 3), 0, "d")
		forged := snapshot.StateHandle{Name: "../other/file"}
		left, err := s.DiscardHandles(t.Context(), loc.Base, []snapshot.StateHandle{first, forged, inline, last, first})
		if !reflect.DeepEqual(left, []snapshot.StateHandle{forged}) || !GotOn(err) {
			t.Errorf("left are %v, got on: %t", left, GotOn(err))
		}
		if err == nil || !strings.Contains(err.Error(), "../other/file") {
			t.Errorf("the forged handle was accepted: %v", err)
		}
		mustHave(t, open, root, string(jobA)+"/chk-7/1.1-0.0.2")
	})
}

// I4, I8: a sweep removes what fenced attempts left, and nothing that is
// kept, of a living attempt, of another job, of a savepoint, or unknown.
func TestSweep(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		s := New(open)
		persist := func(loc Location, attempt ids.AttemptID) {
			t.Helper()
			checkpoint := testCheckpoint()
			checkpoint.Attempt = attempt
			if _, err := s.PersistMetadata(t.Context(), loc, checkpoint); err != nil {
				t.Fatal(err)
			}
		}
		old, living := ids.AttemptID{Token: 1, Number: 9}, ids.AttemptID{Token: 2, Number: 1}
		chk := func(id ids.CheckpointID) Location { return CheckpointLocation(root, jobA, id) }
		write := func(loc Location, attempt ids.AttemptID) {
			t.Helper()
			writeState(t, s, loc, fileOf(attempt.Token, attempt.Number, 0), 0, "x")
		}
		write(chk(5), old) // retained
		persist(chk(5), old)
		write(chk(6), old) // never published
		persist(chk(6), old)
		write(chk(7), old)      // pending when its attempt died
		write(chk(101), old)    // late write of the fenced attempt
		write(chk(101), living) // pending now
		write(chk(102), living) // pending, and begun after Keep was made
		persist(chk(102), living)
		write(CheckpointLocation(root, jobB, 6), old)
		write(SavepointLocation(root+"/"+string(jobA), jobA, 6), old)
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"chk-6/notes", "chk-6/deeper/1.9-0.0.0", "shared/1.9/6-0"} {
			if _, err := store.PutIf(t.Context(), string(jobA)+"/"+name, []byte("x"), objectstore.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"chk-4", "chk-103"} {
			if _, err := store.PutIf(t.Context(), string(jobA)+"/"+dir+"/_metadata", []byte("corrupt"), objectstore.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}

		request := SweepRequest{Base: JobBase(root, jobA), Below: living, Keep: []ids.CheckpointID{5, 101}, DeleteMax: 2}
		result, err := s.Sweep(t.Context(), request)
		if err != nil || result != (SweepResult{Deleted: 2, More: true}) {
			t.Errorf("first sweep: %+v, %v", result, err)
		}
		result, err = s.Sweep(t.Context(), request)
		if err != nil || result != (SweepResult{Deleted: 2}) {
			t.Errorf("second sweep: %+v, %v", result, err)
		}
		want := []string{
			string(jobB) + "/chk-6/1.9-0.0.0",
			string(jobA) + "/chk-101/1.9-0.0.0", string(jobA) + "/chk-101/2.1-0.0.0",
			string(jobA) + "/chk-102/2.1-0.0.0", string(jobA) + "/chk-102/_metadata",
			string(jobA) + "/chk-103/_metadata", // newer than all that are kept: nobody can tell whose it is
			string(jobA) + "/chk-5/1.9-0.0.0", string(jobA) + "/chk-5/_metadata",
			string(jobA) + "/chk-6/deeper/1.9-0.0.0", string(jobA) + "/chk-6/notes",
			string(jobA) + "/savepoint-" + string(jobA) + "-6/1.9-0.0.0",
			string(jobA) + "/shared/1.9/6-0",
		}
		mustHave(t, open, root, want...)

		// A job that has ended writes no more.
		request.Over = true
		result, err = s.Sweep(t.Context(), request)
		if err != nil || result != (SweepResult{Deleted: 2}) {
			t.Errorf("sweep when the job is over: %+v, %v", result, err)
		}
		mustHave(t, open, root, slices.DeleteFunc(want, func(name string) bool {
			return strings.HasSuffix(name, "chk-102/_metadata") || strings.HasSuffix(name, "chk-103/_metadata")
		})...)
	})
}

// A subsumed checkpoint that its JobManager did not come to delete goes,
// although its metadata is broken and cannot even be read.
func TestSweepOfASubsumedCheckpointDoesNotReadIt(t *testing.T) {
	inner := memory.New(memoryRoot)
	for _, dir := range []string{"chk-1", "chk-2"} {
		if _, err := inner.PutIf(t.Context(), string(jobA)+"/"+dir+"/_metadata", []byte("corrupt"), objectstore.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	denied := New(openMemory(faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.Read {
			return faulty.Fault{Before: objectstore.ErrDenied}
		}
		return faulty.Fault{}
	}, nil)))
	request := SweepRequest{Base: JobBase(memoryRoot, jobA), Below: ids.AttemptID{Token: 100}, Keep: []ids.CheckpointID{2}}
	if result, err := denied.Sweep(t.Context(), request); err != nil || result != (SweepResult{Deleted: 1}) {
		t.Errorf("sweep: %+v, %v", result, err)
	}
	mustHave(t, openMemory(inner), memoryRoot, string(jobA)+"/chk-2/_metadata")
}

// I9: a sweep that cannot read a checkpoint's metadata deletes nothing of it.
func TestSweepStopsAtErrors(t *testing.T) {
	inner := memory.New(memoryRoot)
	s := New(openMemory(inner))
	if _, err := s.PersistMetadata(t.Context(), CheckpointLocation(memoryRoot, jobA, 7), testCheckpoint()); err != nil {
		t.Fatal(err)
	}
	broken := New(openMemory(faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == faulty.Read {
			return faulty.Fault{Before: objectstore.ErrDenied}
		}
		return faulty.Fault{}
	}, nil)))
	request := SweepRequest{Base: JobBase(memoryRoot, jobA), Below: ids.AttemptID{Token: 100}}
	if _, err := broken.Sweep(t.Context(), request); !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("sweep: %v", err)
	}
	mustHave(t, openMemory(inner), memoryRoot, string(jobA)+"/chk-7/_metadata")
}

func TestArtifacts(t *testing.T) {
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		if _, exists, err := c.StatArtifact(t.Context(), sum); err != nil || exists {
			t.Errorf("exists: %v, error %v", exists, err)
		}
		if err := c.PutArtifact(t.Context(), sum, strings.NewReader("hellO")); !errors.Is(err, ErrCorrupt) {
			t.Errorf("wrong content: %v", err)
		}
		mustHave(t, open, root)
		for range 2 {
			if err := c.PutArtifact(t.Context(), sum, strings.NewReader("hello")); err != nil {
				t.Fatal(err)
			}
		}
		mustHave(t, open, root, "artifacts/"+sum)
		if size, exists, err := c.StatArtifact(t.Context(), sum); err != nil || !exists || size != 5 {
			t.Errorf("size %d, exists: %v, error %v", size, exists, err)
		}
		read := func() (string, error) {
			reader, err := c.OpenArtifact(t.Context(), sum)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			content, err := io.ReadAll(reader)
			return string(content), err
		}
		if content, err := read(); err != nil || content != "hello" {
			t.Errorf("read %q, %v", content, err)
		}
		err = store.Put(context.Background(), "artifacts/"+sum, func(w io.Writer) error {
			_, err := io.Copy(w, bytes.NewReader([]byte("evil!")))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("changed content: %v", err)
		}
		for _, bad := range []string{"", "../job", strings.ToUpper(sum), sum[:62]} {
			if err := c.PutArtifact(t.Context(), bad, strings.NewReader("")); err == nil {
				t.Errorf("name %q was accepted", bad)
			}
		}
	})
}
