package inspect

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

const filesJob = ids.JobID("0123456789abcdef0123456789abcdef")

// storedInFiles writes checkpoint 9 of a job whose operator "sums" keeps a
// map in two files of a backend "toy", one shared since checkpoint 7, and has
// a list and two broadcast maps. It returns the job's base and the checkpoint.
func storedInFiles(t *testing.T) (base, path string) {
	t.Helper()
	store := checkpointstore.New(open.New(open.Options{}).Open)
	dir := t.TempDir()
	loc, attempt := checkpointstore.CheckpointLocation(dir, filesJob, 9), ids.AttemptID{Token: 1, Number: 1}
	content := func(pairs ...string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(pairs, "\n"))
			return err
		}
	}
	shared, err := store.WriteShared(t.Context(), loc.Base, checkpointstore.SharedFile{Attempt: attempt, Checkpoint: 7}, content("ABQ 1", "ATL 2"))
	must(t, err)
	own, err := store.WriteState(t.Context(), loc, checkpointstore.StateFile{Attempt: attempt}, 0, content("SFO 3"))
	must(t, err)
	number, err := avro.For[int64]()
	must(t, err)
	keyed := snapshot.KeyedStateHandle{
		Range: keygroup.RangeOf(0, 1, 2), Backend: "toy",
		Files: []snapshot.StateFile{{Local: "1.sst", Handle: shared}, {Local: "MANIFEST", Handle: own}},
		States: []snapshot.StateMeta{{
			Name: "sum", Kind: string(statebackend.ValueKind), Codec: number.Name(), Schema: number.Schema(), KeySchema: "key/1:string", SchemaID: 1,
			Earlier: []snapshot.StoredSchema{{Codec: "weir/1", Schema: "int64"}},
		}},
	}
	subtask := snapshot.OperatorSubtaskState{UID: "sums", Keyed: []snapshot.KeyedStateHandle{keyed}}
	lists := state.NewOperator("sums", 0)
	split, err := state.NewSplitList[int32](lists, "pending")
	must(t, err)
	limits, err := state.NewBroadcast[string, int64](lists, "limits")
	must(t, err)
	flags, err := state.NewBroadcast[int16, bool](lists, "flags")
	must(t, err)
	must(t, lists.Restore(nil))
	split.Set([]int32{4, 5})
	var side state.BroadcastSide
	side.Begin()
	must(t, limits.Set(&side, "ABQ", 100))
	must(t, limits.Set(&side, "SFO", 200))
	must(t, flags.Set(&side, -3, true))
	frozen, err := lists.Freeze()
	must(t, err)
	defer frozen.Release()
	must(t, frozen.Write(func(name string, mode snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
		inline, err := store.WriteState(t.Context(), loc, checkpointstore.StateFile{}, 1<<20, content(string(bytes.Join(elements, nil))))
		must(t, err)
		l := snapshot.OperatorStateHandle{Name: name, Redistribution: mode, Handle: inline}
		for _, e := range elements {
			l.Elements = append(l.Elements, int64(len(e)))
		}
		subtask.Lists = append(subtask.Lists, l)
		return nil
	}))
	path, err = store.PersistMetadata(t.Context(), loc, &snapshot.CompletedCheckpoint{
		Job: filesJob, ID: 9, Attempt: attempt, Kind: snapshot.Checkpoint,
		Operators: []snapshot.OperatorState{{UID: "sums", Parallelism: 1, MaxParallelism: 2, Subtasks: []snapshot.OperatorSubtaskState{subtask}}},
	})
	must(t, err)
	return loc.Base, path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readToy reads the files of the backend "toy": lines of a key and a number,
// all in key group 1.
func readToy(_ context.Context, _ string, part statebackend.RestoredPart, groups keygroup.Range) (statebackend.RestoredPart, error) {
	var lines []string
	for _, f := range part.Files {
		content, err := os.ReadFile(f.Path)
		if err != nil {
			return part, err
		}
		lines = append(lines, strings.Split(string(content), "\n")...)
	}
	var data bytes.Buffer
	w := statebackend.NewWriter(&data)
	w.Group()
	w.Group()
	w.State(0, len(lines))
	for _, line := range lines {
		var key string
		var n int64
		if _, err := fmt.Sscan(line, &key, &n); err != nil {
			return part, fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
		}
		w.Entry([]byte(key), binary.AppendVarint(statebackend.AppendValueHeader(nil, 1, 0), n))
	}
	offsets, err := w.Finish()
	return statebackend.RestoredPart{Range: groups, States: part.States, Offsets: offsets, Data: data.Bytes()}, err
}

func openFiles(t *testing.T, path string, readers map[string]FileReader) *Stored {
	t.Helper()
	s, err := Open(t.Context(), open.New(open.Options{}).Open, path, readers)
	must(t, err)
	return s
}

func TestStateInFilesOfItsBackend(t *testing.T) {
	base, path := storedInFiles(t)
	s := openFiles(t, path, map[string]FileReader{"toy": readToy})
	summary, err := s.Summary(t.Context())
	must(t, err)
	if own := summary.Bytes - int64(len("ABQ 1\nATL 2")); summary.OwnBytes != own {
		t.Errorf("%d of %d bytes are of this checkpoint, want %d", summary.OwnBytes, summary.Bytes, own)
	}
	first, second := summary.Files[0], summary.Files[1]
	if !first.Shared || first.SharedSince != 7 || first.Backend != "toy" || first.Name != "shared/1.1/7-0.0.0" || first.Problem != "" || second.Shared {
		t.Errorf("the files are %+v and %+v", first, second)
	}
	op := summary.Operators[0]
	sum := op.States[0]
	if !sum.Complete || sum.Entries != 3 || sum.KeyGroups.Most != 3 || sum.KeyGroups.Largest != 1 || sum.Bytes != 3*6 || len(sum.Earlier) != 1 {
		t.Errorf("the state is %+v", sum)
	}
	if l := op.Lists[0]; l.Name != "list/pending" || l.Codec != avro.Name || l.Schema == "" {
		t.Errorf("the list is %+v", l)
	}
	if b := op.Broadcast; len(b) != 2 || b[0].Name != "limits" || b[0].Entries != 2 || b[1].Name != "flags" || b[1].Entries != 1 {
		t.Errorf("the broadcast maps are %+v", b)
	}
	for target, want := range map[string]string{
		"sums/sum": `{"subtask":0,"key_group":1,"key":"ABQ","value":1}
{"subtask":0,"key_group":1,"key":"ATL","value":2}
{"subtask":0,"key_group":1,"key":"SFO","value":3}
`,
		"sums/limits": `{"subtask":0,"key_group":0,"user_key":"ABQ","value":100}
{"subtask":0,"key_group":0,"user_key":"SFO","value":200}
`,
		"sums/flags": `{"subtask":0,"key_group":0,"user_key":-3,"value":true}
`,
		"sums/list/pending": `{"subtask":0,"element":0,"value":4}
{"subtask":0,"element":1,"value":5}
`,
	} {
		var out strings.Builder
		must(t, s.Dump(t.Context(), target, &out))
		if out.String() != want {
			t.Errorf("%s is\n%s", target, out.String())
		}
	}
	if err := s.Dump(t.Context(), "sums/none", io.Discard); err == nil || !strings.Contains(err.Error(), "limits, flags") {
		t.Errorf("names are %v", err)
	}
	verified, err := s.Verify(t.Context())
	must(t, err)
	if verified.Files != 5 || len(verified.Broken) != 0 || verified.Bytes != summary.Bytes {
		t.Errorf("verified: %+v", verified)
	}

	// Every file that is broken is named, shared ones too.
	must(t, os.WriteFile(filepath.Join(base, "shared/1.1/7-0.0.0"), []byte("ABQ 1\nATL 3"), 0o600))
	must(t, os.Remove(filepath.Join(base, second.Name)))
	verified, err = s.Verify(t.Context())
	must(t, err)
	if b := verified.Broken; len(b) != 2 || !strings.Contains(b[0].Problem, "checksum") || b[0].Name != first.Name || b[1].Problem != "missing" || b[1].Name != second.Name {
		t.Errorf("broken are %+v", b)
	}
	summary, err = s.Summary(t.Context())
	must(t, err)
	if summary.Operators[0].States[0].Complete || !strings.Contains(summary.Files[0].Problem, "checksum") {
		t.Errorf("the state is %+v, its file %+v", summary.Operators[0].States[0], summary.Files[0])
	}
}

// Files of a backend that the program does not know are listed and verified;
// their entries are not.
func TestStateInFilesOfAnUnknownBackend(t *testing.T) {
	_, path := storedInFiles(t)
	s := openFiles(t, path, nil)
	summary, err := s.Summary(t.Context())
	must(t, err)
	if summary.Operators[0].States[0].Complete || !strings.Contains(summary.Files[0].Problem, `state backend "toy"`) {
		t.Errorf("%+v", summary)
	}
	verified, err := s.Verify(t.Context())
	must(t, err)
	if verified.Files != 5 || len(verified.Broken) != 0 {
		t.Errorf("verified: %+v", verified)
	}
	if err := s.Dump(t.Context(), "sums/sum", io.Discard); err == nil || !strings.Contains(err.Error(), "a savepoint") {
		t.Errorf("dump: %v", err)
	}
}

// The files of the backend that jobs run with.
func TestFilesOfThePebbleBackend(t *testing.T) {
	store, dir := checkpointstore.New(open.New(open.Options{}).Open), t.TempDir()
	loc, attempt := checkpointstore.CheckpointLocation(dir, filesJob, 9), ids.AttemptID{Token: 1, Number: 1}
	backend := pebble.New(pebble.Options{MemoryBytes: 16 << 20, ValueBytesMax: 1 << 20})
	keyed, err := state.NewKeyed[string](state.Options{
		Operator: "sums", Range: keygroup.RangeOf(0, 1, 4), MaxParallelism: 4, Backend: backend, Dir: t.TempDir(),
		Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) },
	})
	must(t, err)
	sum, err := state.NewValue[int64](keyed, "sum")
	must(t, err)
	byGate, err := state.NewMap[int32, string](keyed, "by gate", state.WithTTL(time.Hour))
	must(t, err)
	must(t, keyed.Backend().Restore(nil))
	keyed.Tick()
	for i := range 50 {
		must(t, keyed.SetCurrentKey(fmt.Sprint("k", i)))
		must(t, sum.Set(int64(i)))
	}
	must(t, byGate.Set(7, "seven"))
	frozen, err := keyed.Backend().Freeze()
	must(t, err)
	set, err := frozen.(statebackend.FileFrozen).Files(t.Context())
	must(t, err)
	handle := snapshot.KeyedStateHandle{Range: keygroup.RangeOf(0, 1, 4), States: set.States, Backend: pebble.Name}
	for i, f := range set.Files {
		h, err := store.WriteShared(t.Context(), loc.Base, checkpointstore.SharedFile{Attempt: attempt, Checkpoint: 9, Seq: uint32(i)}, checkpointstore.FileContent(f.Path, f.Size))
		must(t, err)
		handle.Files = append(handle.Files, snapshot.StateFile{Local: f.Local, Handle: h})
	}
	frozen.Release()
	must(t, keyed.Backend().Close())
	must(t, backend.Close())
	path, err := store.PersistMetadata(t.Context(), loc, &snapshot.CompletedCheckpoint{
		Job: filesJob, ID: 9, Attempt: attempt, Kind: snapshot.Checkpoint,
		Operators: []snapshot.OperatorState{{UID: "sums", Parallelism: 1, MaxParallelism: 4, Subtasks: []snapshot.OperatorSubtaskState{
			{UID: "sums", Keyed: []snapshot.KeyedStateHandle{handle}},
		}}},
	})
	must(t, err)
	s := openFiles(t, path, map[string]FileReader{pebble.Name: pebble.ReadFiles})
	summary, err := s.Summary(t.Context())
	must(t, err)
	states := summary.Operators[0].States
	if len(states) != 2 || !states[0].Complete || states[0].Entries+states[1].Entries != 51 || len(summary.Files) != len(set.Files) || summary.OwnBytes != summary.Bytes {
		t.Errorf("the summary is %+v", summary)
	}
	var out strings.Builder
	must(t, s.Dump(t.Context(), "sums/by gate", &out))
	if got := out.String(); !strings.Contains(got, `"key":"k49","user_key":7,"written_ms":1800000000000,"value":"seven"`) {
		t.Errorf("the map is %s", got)
	}
	out.Reset()
	must(t, s.Dump(t.Context(), "sums/sum", &out))
	if got := out.String(); strings.Count(got, "\n") != 50 || !strings.Contains(got, `"key":"k41","value":41}`) {
		t.Errorf("the values are %s", got)
	}
	verified, err := s.Verify(t.Context())
	must(t, err)
	if verified.Files != len(set.Files) || len(verified.Broken) != 0 {
		t.Errorf("verified: %+v", verified)
	}
}
