package file

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

const testJob = ids.JobID("0123456789abcdef0123456789abcdef")

type count struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

// harness is the sink of one subtask in one attempt.
type harness struct {
	t         *testing.T
	dir       string
	writer    operator.TwoPhaseWriter[count]
	committer operator.Committer
}

func testContext(attempt uint32, subtask int) *operator.Context {
	return &operator.Context{Job: testJob, Operator: "out", Attempt: ids.AttemptID{Token: 1, Number: attempt}, Index: subtask, Parallelism: 2}
}

// open starts an attempt that was restored from a checkpoint.
func open(t *testing.T, dir string, attempt uint32, restored ids.CheckpointID, savepoints ...ids.CheckpointID) *harness {
	t.Helper()
	s := ExactlyOnce[count](dir)
	ctx := testContext(attempt, 0)
	c, err := s.OpenCommitter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.OpenWriter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Recover(t.Context(), operator.Recovery{Attempt: ctx.Attempt, Restored: restored, Savepoints: savepoints}); err != nil {
		t.Fatal(err)
	}
	return &harness{t: t, dir: dir, writer: w, committer: c}
}

func (h *harness) write(words ...string) {
	h.t.Helper()
	for i, w := range words {
		if err := h.writer.Write(count{Word: w, Count: i + 1}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *harness) prepare(id ids.CheckpointID) operator.Prepared {
	h.t.Helper()
	p, err := h.writer.Prepare(id)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *harness) persist(p operator.Prepared) []operator.Committable {
	h.t.Helper()
	c, err := p.Persist(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *harness) commit(c []operator.Committable) {
	h.t.Helper()
	if err := h.committer.Commit(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) close() {
	h.t.Helper()
	if err := errors.Join(h.writer.Close(), h.committer.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// list names the directory's files, the job's ID and what is always the same shortened.
func (h *harness) list() string {
	h.t.Helper()
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.Replace(e.Name(), "part-"+string(testJob)+"-", "", 1))
	}
	return strings.Join(names, " ")
}

func (h *harness) expect(step, want string) {
	h.t.Helper()
	if got := h.list(); got != want {
		h.t.Errorf("%s: files are %q, want %q", step, got, want)
	}
}

func (h *harness) content(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, strings.Replace(name, "out-", "part-"+string(testJob)+"-out-", 1)))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

func TestLifeOfAFile(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "made", "on", "open"), 1, 0)
	h.expect("opened", "")
	h.write("a", "b<c>")
	h.expect("written", ".out-1.1-0-n0.inprogress")
	p := h.prepare(1)
	h.write("next")
	h.expect("prepared", ".out-1.1-0-n0.inprogress .out-1.1-0-n1.inprogress")
	c := h.persist(p)
	h.expect("persisted", ".out-1.1-0-1.jsonl.pending .out-1.1-0-n1.inprogress")
	h.commit(c)
	h.expect("committed", ".out-1.1-0-n1.inprogress out-1.1-0-1.jsonl")
	if got, want := h.content("out-1.1-0-1.jsonl"), "{\"word\":\"a\",\"count\":1}\n{\"word\":\"b<c>\",\"count\":2}\n"; got != want {
		t.Errorf("content %q, want %q", got, want)
	}
	h.commit(c) // again: another subtask or job may
	h.expect("committed twice", ".out-1.1-0-n1.inprogress out-1.1-0-1.jsonl")
	h.close()
	h.expect("closed", "out-1.1-0-1.jsonl")
}

// What is aborted is gone, once or twice; what is committed stays, whatever is
// said of it (I1).
func TestAbortRemovesPendingFilesOnly(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	committed := h.persist(h.prepare(1))
	h.commit(committed)
	h.write("b")
	kept := h.persist(h.prepare(2))
	h.write("c")
	given := h.persist(h.prepare(3))
	h.write("d")
	for range 2 {
		if err := h.committer.Abort(t.Context(), append(given, committed...)); err != nil {
			t.Fatal(err)
		}
		h.expect("aborted", ".out-1.1-0-2.jsonl.pending .out-1.1-0-n3.inprogress out-1.1-0-1.jsonl")
	}
	h.close()
	h.expect("closed", ".out-1.1-0-2.jsonl.pending out-1.1-0-1.jsonl")
	h.commit(kept) // as a job that starts from the checkpoint would
	h.expect("committed later", "out-1.1-0-1.jsonl out-1.1-0-2.jsonl")
}

// A Persist that failed after the rename leaves a pending file that no
// checkpoint has: closing removes it.
func TestCloseRemovesWhatAFailedPersistLeft(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	p := h.prepare(1).(*transaction)
	if err := os.Rename(filepath.Join(h.dir, p.name), filepath.Join(h.dir, pendingName(p.committed))); err != nil {
		t.Fatal(err)
	}
	h.close()
	h.expect("closed", "")
}

// A checkpoint without records makes no file, and nothing to commit.
func TestEmptyTransaction(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	if p := h.prepare(1); p != nil {
		t.Errorf("prepared %v of nothing", p)
	}
	h.commit(nil)
	h.close()
	h.expect("closed", "")
}

// Large transactions reach the disk before they are prepared, and are complete.
func TestLargeTransaction(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	const records = 20_000
	var want strings.Builder
	for i := range records {
		h.write(fmt.Sprintf("word-%d", i))
		fmt.Fprintf(&want, "{\"word\":\"word-%d\",\"count\":1}\n", i)
	}
	c := h.persist(h.prepare(4))
	h.commit(c)
	if got := h.content("out-1.1-0-4.jsonl"); got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
	parsed, err := decodeCommittable(c[0])
	if err != nil || parsed.size != int64(want.Len()) || parsed.crc != crc32.Checksum([]byte(want.String()), castagnoli) {
		t.Errorf("committable %+v, error %v", parsed, err)
	}
	h.close()
}

// A crash at every step, and what the next attempt makes of it. In each case
// attempt 1 wrote "a" for checkpoint 1 and crashed; attempt 2 restores it or not.
func TestCrashes(t *testing.T) {
	type crash struct {
		name     string
		until    func(h *harness) []operator.Committable // the committables in the restored checkpoint
		restored ids.CheckpointID
		want     string // files after attempt 2 has restored and committed
	}
	for _, c := range []crash{
		{"while writing", func(h *harness) []operator.Committable { h.write("a"); return nil }, 0, ""},
		{"before fsync", func(h *harness) []operator.Committable { h.write("a"); h.prepare(1); return nil }, 0, ""},
		{"persisted, not acknowledged", func(h *harness) []operator.Committable {
			h.write("a")
			h.persist(h.prepare(1))
			return nil
		}, 0, ""},
		{"published, not committed", func(h *harness) []operator.Committable {
			h.write("a")
			c := h.persist(h.prepare(1))
			h.write("b")
			return c
		}, 1, "out-1.1-0-1.jsonl"},
		{"between link and unlink", func(h *harness) []operator.Committable {
			h.write("a")
			c := h.persist(h.prepare(1))
			name := filepath.Join(h.dir, "part-"+string(testJob)+"-out-1.1-0-1.jsonl")
			if err := os.Link(filepath.Join(h.dir, pendingName(filepath.Base(name))), name); err != nil {
				h.t.Fatal(err)
			}
			return c
		}, 1, "out-1.1-0-1.jsonl"},
		{"committed, not known", func(h *harness) []operator.Committable {
			h.write("a")
			c := h.persist(h.prepare(1))
			h.commit(c)
			return c
		}, 1, "out-1.1-0-1.jsonl"},
		{"several checkpoints open", func(h *harness) []operator.Committable {
			h.write("a")
			c := h.persist(h.prepare(1))
			h.write("b")
			c = append(c, h.persist(h.prepare(2))...)
			h.write("c")
			h.persist(h.prepare(3)) // not in checkpoint 2
			return c
		}, 2, "out-1.1-0-1.jsonl out-1.1-0-2.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			committables := c.until(open(t, dir, 1, 0)) // never closed: it crashed
			h := open(t, dir, 2, c.restored)
			h.commit(committables)
			h.expect("restored", c.want)
			h.write("z")
			h.commit(h.persist(h.prepare(9)))
			h.close()
			if got, want := h.list(), strings.TrimSpace(c.want+" out-1.2-0-9.jsonl"); got != want {
				t.Errorf("after attempt 2: %q, want %q", got, want)
			}
			for _, name := range strings.Fields(c.want) {
				if lines := h.content(name); strings.Count(lines, "\n") != 1 || !strings.HasSuffix(lines, "}\n") {
					t.Errorf("%s has %q", name, lines)
				}
			}
		})
	}
}

// I4: an attempt removes what older attempts of its own operator left and
// nothing needs, and no other file.
func TestRecoverRemovesOnlyItsOwn(t *testing.T) {
	const other = "fedcba9876543210fedcba9876543210"
	prefix := "part-" + string(testJob)
	gone := []string{
		"." + prefix + "-out-1.1-0-n0.inprogress", "." + prefix + "-out-1.1-7-n3.inprogress", "." + prefix + "-out-0.9-0-n0.inprogress",
		"." + prefix + "-out-1.1-0-8.jsonl.pending", "." + prefix + "-out-1.1-3-9.csv.pending",
		// Committed for checkpoints after the restored one: the job has fallen back.
		prefix + "-out-1.1-0-8.jsonl", prefix + "-out-1.1-5-8.jsonl", prefix + "-out-0.3-0-12.csv",
		prefix + "-out-1.1-4-6.jsonl", prefix + "-out-1.1-0-7.jsonl", // pending again, for a savepoint
	}
	kept := []string{
		prefix + "-out-1.1-0-1.jsonl", prefix + "-out-1.1-0-5.jsonl",
		prefix + "-out-1.2-0-8.jsonl", prefix + "-out-1.3-0-9.jsonl", // of this attempt, and of a newer one
		prefix + "-out2-1.1-0-9.jsonl", "part-" + other + "-out-1.1-0-9.jsonl", // of others
		"." + prefix + "-out-1.1-0-5.jsonl.pending",   // in the restored checkpoint
		"." + prefix + "-out-1.1-0-6.jsonl.pending",   // in a savepoint taken later
		"." + prefix + "-out-1.1-0-7.jsonl.pending",   // of a savepoint
		"." + prefix + "-out-1.2-1-n0.inprogress",     // this attempt's
		"." + prefix + "-out-1.3-1-n0.inprogress",     // a newer one's
		"." + prefix + "-out-2.1-1-9.jsonl.pending",   // a newer one's
		"." + prefix + "-out2-1.1-0-n0.inprogress",    // another operator's
		"." + prefix + "-out-x-1.1-0-9.jsonl.pending", // another operator's
		".part-" + other + "-out-1.1-0-n0.inprogress", // another job's
		".part-" + other + "-out-1.1-0-9.jsonl.pending",
		".part-mine.inprogress", ".hidden", "notes.txt", "out-1.1-0-9.jsonl.pending",
	}
	dir := t.TempDir()
	for _, name := range append(slices.Clone(gone), kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "."+prefix+"-out-1.1-0-n9.inprogress"), 0o755); err != nil { // no file of ours
		t.Fatal(err)
	}
	recovery := operator.Recovery{Attempt: ids.AttemptID{Token: 1, Number: 2}, Restored: 5, Savepoints: []ids.CheckpointID{3, 7}}
	for _, subtask := range []int{1, 0} {
		c, err := ExactlyOnce[count](dir).OpenCommitter(testContext(2, subtask))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Recover(t.Context(), recovery); err != nil {
			t.Fatal(err)
		}
		for _, name := range gone {
			if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != (subtask == 1) {
				t.Errorf("subtask %d: %s: %v", subtask, name, err)
			}
		}
	}
	for _, name := range append(kept, "."+prefix+"-out-1.1-4-6.jsonl.pending", "."+prefix+"-out-1.1-0-n9.inprogress") {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

// A file of the output's name that is not ours is never replaced.
func TestNeverReplaces(t *testing.T) {
	for _, content := range []string{"somebody else's", "{\"word\":\"A\",\"count\":1}\n", ""} {
		h := open(t, t.TempDir(), 1, 0)
		h.write("a")
		c := h.persist(h.prepare(1))
		path := filepath.Join(h.dir, "part-"+string(testJob)+"-out-1.1-0-1.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		err := h.committer.Commit(t.Context(), c)
		if !operator.IsPermanent(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want a permanent one with the path", err)
		}
		if got := h.content("out-1.1-0-1.jsonl"); got != content {
			t.Errorf("the file has %q, had %q", got, content)
		}
		h.expect("refused", ".out-1.1-0-1.jsonl.pending out-1.1-0-1.jsonl")
	}
}

// A transaction that is neither pending nor visible is lost, and that is told
// apart from one that is committed.
// An older attempt's committer may be on its way while the next attempt commits
// the same: both find it committed, wherever they meet.
func TestCommittersThatMeet(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	prepared := h.persist(h.prepare(1))
	c, err := decodeCommittable(prepared[0])
	if err != nil {
		t.Fatal(err)
	}
	h.commit(prepared)
	pending, visible := filepath.Join(h.dir, pendingName(c.name)), filepath.Join(h.dir, c.name)
	const committers, rounds = 4, 2000 // without the check some of the first hundreds fail
	for round := range rounds {
		if err := os.Rename(visible, pending); err != nil {
			t.Fatal(err)
		}
		var meeting sync.WaitGroup
		start := make(chan struct{})
		errs := make([]error, committers)
		for i := range committers {
			one := h.committer.(*committer)
			meeting.Go(func() {
				<-start
				errs[i] = one.publish(c)
			})
		}
		close(start)
		meeting.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if _, err := os.Lstat(pending); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("round %d: the pending file is left (%v)", round, err)
		}
	}
	h.close()
}

func TestLostTransaction(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	c := h.persist(h.prepare(1))
	name := "part-" + string(testJob) + "-out-1.1-0-1.jsonl"
	pending := filepath.Join(h.dir, pendingName(name))
	if err := os.WriteFile(pending, []byte("cut"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.committer.Commit(t.Context(), c); !operator.IsPermanent(err) || !strings.Contains(err.Error(), "has 3 bytes") {
		t.Errorf("changed pending file: error %v", err)
	}
	if err := os.Remove(pending); err != nil {
		t.Fatal(err)
	}
	if err := h.committer.Commit(t.Context(), c); !operator.IsPermanent(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("lost file: error %v", err)
	}
	for _, bad := range []operator.Committable{nil, {1}, {2, 0, 0, 0, 0, 0}, append(operator.Committable{1, 3, 0, 0, 0, 0}, "../../etc/passwd"...)} {
		if err := h.committer.Commit(t.Context(), []operator.Committable{bad}); !operator.IsPermanent(err) {
			t.Errorf("committable %q: error %v", bad, err)
		}
	}
}

// What Persist could not do it does when it is asked again; after a failed
// fsync it never claims to have.
func TestPersistAgain(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	p := h.prepare(1).(*transaction)
	moved := h.dir + "-moved"
	if err := os.Rename(h.dir, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Persist(t.Context()); err == nil {
		t.Fatal("persisted in a directory that is not there")
	}
	if err := os.Rename(moved, h.dir); err != nil {
		t.Fatal(err)
	}
	h.commit(h.persist(p))
	h.expect("persisted again", "out-1.1-0-1.jsonl")

	h.write("b")
	p = h.prepare(2).(*transaction)
	if err := p.file.Close(); err != nil { // makes write and fsync fail
		t.Fatal(err)
	}
	p.rest = nil
	_, first := p.Persist(t.Context())
	_, second := p.Persist(t.Context())
	if first == nil || !errors.Is(second, os.ErrClosed) {
		t.Errorf("errors %v and %v", first, second)
	}
	h.close()
	h.expect("closed", "out-1.1-0-1.jsonl")
}

// Closing removes what is in no checkpoint, and a late Persist does not bring it back.
func TestCloseAbandons(t *testing.T) {
	h := open(t, t.TempDir(), 1, 0)
	h.write("a")
	persisted := h.persist(h.prepare(1))
	h.write("b")
	late := h.prepare(2)
	h.write("c")
	h.close()
	h.expect("closed", ".out-1.1-0-1.jsonl.pending")
	if _, err := late.Persist(t.Context()); err == nil {
		t.Error("persisted after the writer was closed")
	}
	h.commit(persisted)
	h.expect("committed", "out-1.1-0-1.jsonl")
}

func TestUnusableDirectory(t *testing.T) {
	f := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(f, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{f, filepath.Join(f, "below")} {
		_, err := ExactlyOnce[count](dir).OpenWriter(testContext(1, 0))
		if !operator.IsPermanent(err) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "on host") {
			t.Errorf("%s: error %v, want a permanent one with directory and host", dir, err)
		}
	}
	if err := ExactlyOnce[count]("").(operator.Validator).Validate(); err == nil {
		t.Error("an empty path is valid")
	}
}

func TestEncoding(t *testing.T) {
	csv := func(dst []byte, v *count) ([]byte, error) {
		if v.Count < 0 {
			return dst, errors.New("negative")
		}
		return fmt.Appendf(dst, "%s,%d", v.Word, v.Count), nil
	}
	dir := t.TempDir()
	s := ExactlyOnce(dir, WithEncoding(".csv", csv))
	w, err := s.OpenWriter(testContext(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, dir: dir, writer: w}
	h.write("a", "b")
	h.persist(h.prepare(1))
	h.expect("persisted", ".out-1.1-0-1.csv.pending")
	if got := h.content(".out-1.1-0-1.csv.pending"); got != "a,1\nb,2\n" {
		t.Errorf("content %q", got)
	}
	if err := w.Write(count{Count: -1}); err == nil || operator.IsPermanent(err) {
		t.Errorf("error of the encoding: %v", err)
	}
	if err := w.Write(count{Word: "two\nlines"}); !operator.IsPermanent(err) || !strings.Contains(err.Error(), "end of line") {
		t.Errorf("record of two lines: %v", err)
	}
	for _, extension := range []string{"", ".", "csv", ".a/b", ".a.b", "-x"} {
		if err := ExactlyOnce(dir, WithEncoding(extension, csv)).(operator.Validator).Validate(); err == nil {
			t.Errorf("extension %q is valid", extension)
		}
	}
}
