package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// storedStats is a value in the stored checkpoints of tests.
type storedStats struct {
	Flights int64
	Carrier string
	Delays  []int32
}

const (
	storedMaxParallelism = 8
	storedParallelism    = 2
)

// storedAt writes a checkpoint of a job with a source, a keyed operator and a
// sink below dir and returns its directory.
func storedAt(t *testing.T, dir string, kind snapshot.Kind) string {
	t.Helper()
	store := checkpointstore.New(open.New(open.Options{}).Open)
	loc := checkpointstore.SavepointLocation(dir, runningJob, 17)
	if kind == snapshot.Checkpoint {
		loc = checkpointstore.CheckpointLocation(dir, runningJob, 17)
	}
	c := &snapshot.CompletedCheckpoint{
		Job: runningJob, JobName: "flights", ID: 17, Attempt: ids.AttemptID{Token: 1, Number: 2}, Kind: kind,
		TriggeredAt: time.UnixMilli(1_000_000_000_000).UTC(), CompletedAt: time.UnixMilli(1_000_000_000_250).UTC(),
		Splits:     []snapshot.SplitList{{UID: "flights", Complete: true, Splits: []snapshot.Split{{Data: []byte("flights.jsonl:0-4096")}, {Data: []byte{0, 1}}}}},
		EndOfData:  []snapshot.EndedSubtask{{UID: "flights", Index: 1}},
		Savepoints: []ids.CheckpointID{9},
	}
	for v, uid := range []ids.OperatorUID{"flights", "delays", "out"} {
		op := snapshot.OperatorState{UID: uid, Parallelism: storedParallelism, MaxParallelism: storedMaxParallelism}
		for i := range storedParallelism {
			w := &storedWriter{t: t, store: store, loc: loc, file: checkpointstore.StateFile{
				Attempt: c.Attempt, Subtask: ids.SubtaskID{Vertex: ids.VertexID(v), Index: int32(i)},
			}}
			state := snapshot.OperatorSubtaskState{UID: uid}
			switch uid {
			case "flights":
				state.Lists = append(state.Lists, w.list("splits", snapshot.ByIndex, []int64{int64(i)}, "position"))
			case "delays":
				state.Keyed = append(state.Keyed, w.keyed(keygroup.RangeOf(i, storedParallelism, storedMaxParallelism)))
			case "out":
				state.Lists = append(state.Lists, w.list("committables", snapshot.SplitEvenly, nil, "part-1", "part-2"))
			}
			op.Subtasks = append(op.Subtasks, state)
		}
		c.Operators = append(c.Operators, op)
	}
	if _, err := store.PersistMetadata(t.Context(), loc, c); err != nil {
		t.Fatal(err)
	}
	return loc.URI()
}

// storedWriter writes the state of one operator in one subtask.
type storedWriter struct {
	t     *testing.T
	store *checkpointstore.Store
	loc   checkpointstore.Location
	file  checkpointstore.StateFile
}

func (w *storedWriter) write(content func(io.Writer) error) snapshot.StateHandle {
	w.t.Helper()
	h, err := w.store.WriteState(w.t.Context(), w.loc, w.file, 0, content)
	if err != nil {
		w.t.Fatal(err)
	}
	w.file.Seq++
	return h
}

func (w *storedWriter) list(name string, mode snapshot.Redistribution, indexes []int64, elements ...string) snapshot.OperatorStateHandle {
	h := snapshot.OperatorStateHandle{Name: name, Redistribution: mode, Indexes: indexes}
	h.Handle = w.write(func(to io.Writer) error {
		_, err := io.WriteString(to, strings.Join(elements, ""))
		return err
	})
	for _, e := range elements {
		h.Elements = append(h.Elements, int64(len(e)))
	}
	return h
}

// keyed writes two states of the airports whose keys are in the range: stats,
// which can be decoded, and sketch, whose codec is the user's.
func (w *storedWriter) keyed(r keygroup.Range) snapshot.KeyedStateHandle {
	w.t.Helper()
	key, err := keygroup.NewEncoding[string]()
	if err != nil {
		w.t.Fatal(err)
	}
	stats, err := codec.For[storedStats]()
	if err != nil {
		w.t.Fatal(err)
	}
	airports := []string{"ATL", "CDG", "FRA", "JFK", "LHR", "ORD"}
	h := snapshot.KeyedStateHandle{Range: r, States: []snapshot.StateMeta{
		{Name: "stats", Kind: "value", Codec: stats.Name(), Schema: stats.Schema(), KeySchema: key.Schema()},
		{Name: "sketch", Kind: "value", Codec: "hll/3", Schema: "hll(12)", KeySchema: key.Schema()},
	}}
	h.Handle = w.write(func(to io.Writer) (err error) {
		writer := statebackend.NewWriter(to)
		for g := r.First; g <= r.Last; g++ {
			writer.Group()
			in := slices.DeleteFunc(slices.Clone(airports), func(a string) bool {
				return keygroup.OfHash(key.Hash(&a), storedMaxParallelism) != g
			})
			if len(in) == 0 {
				continue
			}
			writer.State(0, len(in))
			for i, a := range in {
				value := storedStats{Flights: int64(len(in)), Carrier: "C" + a, Delays: []int32{int32(i), -1}}
				writer.Entry([]byte(a), stats.Append(statebackend.AppendValueHeader(nil, 0, 0), &value))
			}
			writer.State(1, 1)
			writer.Entry([]byte(in[0]), append(statebackend.AppendValueHeader(nil, 0, 0), 0xca, 0xfe))
		}
		h.Offsets, err = writer.Finish()
		return err
	})
	return h
}

// without replaces the directory of a test in what was printed.
func without(dir, printed string) string { return strings.ReplaceAll(printed, dir, "DIR") }

func TestInspectOutput(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	dir := t.TempDir()
	path := storedAt(t, dir, snapshot.Savepoint)
	for name, args := range map[string][]string{
		"inspect": {}, "inspect_verify": {"--verify"}, "inspect_dump": {"--dump", "delays/stats"},
		"inspect_dump_hex": {"--dump", "delays/sketch"}, "inspect_dump_list": {"--dump", "flights/splits"},
	} {
		for _, format := range []string{"json", "text"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				stdout, stderr, code := flinkctl(t, append([]string{"inspect", path, "-o", format}, args...)...)
				if code != codeOK || stderr != "" {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				golden(t, name+"."+format, without(dir, stdout))
			})
		}
	}
}

func TestInspectTakesRelativePathsAndCheckpoints(t *testing.T) {
	dir := t.TempDir()
	storedAt(t, dir, snapshot.Checkpoint)
	t.Chdir(dir)
	for _, path := range []string{runningJob + "/chk-17", runningJob + "/chk-17/", runningJob + "/chk-17/_metadata", "file://" + dir + "/" + runningJob + "/chk-17"} {
		stdout, stderr, code := flinkctl(t, "inspect", "--verify", path)
		if code != codeOK || !strings.HasPrefix(stdout, "verified: 6 files, 0 broken") {
			t.Errorf("%s: exit code %d, printed %q\n%s", path, code, stdout, stderr)
		}
	}
}

func TestInspectNamesBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	path := storedAt(t, dir, snapshot.Savepoint)
	flipped, missing, longer := filepath.Join(path, "1.2-1.0.0"), filepath.Join(path, "1.2-1.1.0"), filepath.Join(path, "1.2-2.0.0")
	content, err := os.ReadFile(flipped)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	for name, content := range map[string][]byte{flipped: content, longer: []byte("part-1part-2part-3")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := flinkctl(t, "inspect", "--verify", path)
	for _, want := range []string{"1.2-1.0.0 of delays[0]: ", "checksum is", "1.2-1.1.0 of delays[1]: missing", "1.2-2.0.0 of out[0]: ", "has more than the 12 bytes"} {
		if !strings.Contains(stdout, want) || !strings.Contains(stderr, want) {
			t.Errorf("%q is not in both:\n%s%s", want, stdout, stderr)
		}
	}
	if code != codeFailed || !strings.Contains(stderr, "error: 3 of 6 files are broken: ") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
	// Without --verify lists are not read, and what can be counted is.
	stdout, stderr, code = flinkctl(t, "inspect", path)
	if code != codeFailed || !strings.Contains(stderr, "error: 2 of 6 files are broken: ") || !strings.Contains(stdout, "incomplete") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	if _, stderr, code = flinkctl(t, "inspect", "--dump", "delays/stats", path); code != codeFailed || !strings.Contains(stderr, "checksum is") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestInspectErrors(t *testing.T) {
	dir := t.TempDir()
	path := storedAt(t, dir, snapshot.Savepoint)
	damaged := filepath.Join(dir, "damaged")
	if err := os.MkdirAll(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "_metadata"), []byte("WEIRMETA and not much else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code exitCode
		want string
	}{
		{[]string{"inspect"}, codeUsage, "needs one path"},
		{[]string{"inspect", dir}, codeNotFound, "holds no checkpoint or savepoint"},
		{[]string{"inspect", damaged}, codeFailed, "checksum"},
		{[]string{"inspect", "--verify", "--dump", "a/b", path}, codeUsage, "verify"},
		{[]string{"inspect", "--dump", "delays", path}, codeNotFound, "UID/STATE"},
		{[]string{"inspect", "--dump", "delays/stat", path}, codeNotFound, `operator "delays" has the states stats, sketch`},
		{[]string{"inspect", "--dump", "delay/stats", path}, codeNotFound, `operator "delay" has no state`},
		{[]string{"inspect", "-D", "taskmanager.numberOfTaskSlots=1", path}, codeUsage, "belongs to the cluster"},
		{[]string{"inspect", "ftp://x/y"}, codeFailed, "s3://BUCKET/PREFIX"},
	} {
		stdout, stderr, code := flinkctl(t, test.args...)
		if code != test.code || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("%v: exit code %d, want %d; stderr has to contain %q:\n%s%s", test.args, code, test.code, test.want, stdout, stderr)
		}
	}
}

func TestDispose(t *testing.T) {
	dir := t.TempDir()
	for _, format := range []string{"json", "text"} {
		path := storedAt(t, dir, snapshot.Savepoint)
		stdout, stderr, code := flinkctl(t, "savepoint", "dispose", "-o", format, path)
		if code != codeOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		golden(t, "dispose."+format, without(dir, stdout))
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the savepoint's directory is still there: %v", err)
		}
		if _, stderr, code = flinkctl(t, "savepoint", "dispose", path); code != codeNotFound {
			t.Errorf("the second time: exit code %d: %s", code, stderr)
		}
	}
	checkpoint := storedAt(t, dir, snapshot.Checkpoint)
	_, stderr, code := flinkctl(t, "savepoint", "dispose", checkpoint)
	if code != codeRefused || !strings.Contains(stderr, "holds checkpoint 17 of job "+runningJob+": not a savepoint") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, stderr, code = flinkctl(t, "inspect", "--verify", checkpoint); code != codeOK {
		t.Errorf("the refused checkpoint is damaged: %s", stderr)
	}
	stdout, stderr, code := flinkctl(t, "savepoint", "dispose", "--left-behind", checkpoint)
	if code != codeOK || !strings.Contains(stdout, "disposed: checkpoint 17 of job "+runningJob) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(checkpoint); !os.IsNotExist(err) {
		t.Errorf("the checkpoint's directory is still there: %v", err)
	}
	if _, stderr, code = flinkctl(t, "savepoint", "dispose", dir); code != codeNotFound {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestDisposeDeletesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := storedAt(t, dir, snapshot.Savepoint)
	outside := filepath.Join(dir, "outside")
	kept := map[string]string{outside: "of others", filepath.Join(path, "notes.txt"): "of the user", filepath.Join(path, "1.1-0.0.x"): "no state file"}
	for name, content := range kept {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A file of the savepoint, and a directory named like one, that lead elsewhere.
	if err := os.Remove(filepath.Join(path, "1.2-0.0.0")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	kept[filepath.Join(other, "1.2-0.0.0")] = "of another savepoint"
	if err := os.WriteFile(filepath.Join(other, "1.2-0.0.0"), []byte("of another savepoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"1.2-0.0.0": outside, "1.2-9.9.9": other} {
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, stderr, code := flinkctl(t, "savepoint", "dispose", path); code != codeOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for name, content := range kept {
		if got, err := os.ReadFile(name); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(path, "1.2-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if info, err := os.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is left of the savepoint: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(path, "_metadata")); !os.IsNotExist(err) {
		t.Errorf("_metadata is still there: %v", err)
	}
}
