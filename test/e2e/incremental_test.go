//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

// stateOfCheckpoint is what a stored checkpoint consists of.
type stateOfCheckpoint struct {
	job string
	// names has all files, below the directory of the job's checkpoints.
	names  []string
	shared int
}

// loaded reads the metadata of a checkpoint of a job, and every byte of what it
// refers to.
func (c *cluster) loaded(path string) *stateOfCheckpoint {
	c.t.Helper()
	opener := c.opener()
	defer opener.Close()
	store := checkpointstore.New(opener.Open)
	checkpoint, base, err := store.LoadMetadata(c.ctx, path)
	checkpoint = must(c, checkpoint, err)
	s := &stateOfCheckpoint{job: string(checkpoint.Job), names: []string{filepath.Join(filepath.Base(path), "_metadata")}}
	checkpoint.EachHandle(func(h snapshot.StateHandle) {
		if h.IsInline() {
			return
		}
		if _, err := store.ReadState(c.ctx, base, h); err != nil {
			c.t.Errorf("%s: %v", path, err)
		}
		if h.IsShared() {
			s.shared++
		}
		s.names = append(s.names, h.Name)
	})
	return s
}

// awaitExactly waits until the checkpoints that are given are all there is of
// their job's, file by file.
func (c *cluster) awaitExactly(job string, checkpoints ...*stateOfCheckpoint) {
	c.t.Helper()
	var want, have []string
	for _, s := range checkpoints {
		for _, name := range s.names {
			want = append(want, filepath.Join(c.storeDir(filepath.Join("checkpoints", job)), name))
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if err := clidriver.Poll(c.ctx, "the files to be those of the retained checkpoints", func() (bool, error) {
		names, err := c.storedNames(filepath.Join("checkpoints", job))
		have = names
		slices.Sort(have)
		return slices.Equal(want, have), err
	}); err != nil {
		c.t.Errorf("%v: want %v, there are %v", err, want, have)
	}
}

// completed are the checkpoints of a job that were completed, oldest first.
func (c *cluster) completed(job string) (completed []cliresult.Checkpoint) {
	c.t.Helper()
	var taken cliresult.Checkpoints
	if err := c.Read(c.ctx, &taken, "checkpoints", job); err != nil {
		c.t.Fatal(err)
	}
	for _, one := range slices.Backward(taken.Checkpoints) {
		if one.Status == cliresult.CheckpointCompleted {
			completed = append(completed, one)
		}
	}
	return completed
}

// retain keeps a cancelled job's checkpoints.
const retain = "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"

// TestIncrementalCheckpointsUploadWhatIsNew compares what checkpoints are and
// what was uploaded for them: with a backend whose files last, without
// increments, and with the backend that has no files.
func TestIncrementalCheckpointsUploadWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]struct {
		backend     string
		incremental bool
	}{"incremental": {"pebble", true}, "full": {"pebble", false}, "memory": {"memory", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKinds(t, 1_000_000)
			c := start(t, "--taskmanagers", "1", "--slots", "2", "-D", "execution.checkpointing.interval=300ms", "-D", "execution.checkpointing.num-retained=1")
			flags := slices.Concat(onBackend(setting.backend), []string{"--parallelism", "2", "-D", retain})
			if !setting.incremental {
				flags = append(flags, "-D", "execution.checkpointing.incremental=false")
			}
			job := c.submit(append(flags, k.args(400, "--ballast", "20000")...)...)
			c.awaitCheckpoint(job, 8)
			contains(t, c.run("checkpoints", job), "FULL", "INCREMENTAL")
			isIncremental := setting.backend == "pebble" && setting.incremental
			less, all := 0, c.completed(job)
			for _, one := range all {
				switch {
				case one.Uploaded > one.Size || one.Size == 0 || one.Uploaded == 0:
					t.Errorf("checkpoint %d of %d bytes has uploaded %d", one.ID, one.Size, one.Uploaded)
				case !isIncremental && one.Uploaded != one.Size:
					t.Errorf("checkpoint %d of %d bytes has uploaded only %d", one.ID, one.Size, one.Uploaded)
				case one.Uploaded*2 < one.Size:
					less++
				}
			}
			if len(all) < 5 {
				t.Errorf("%d checkpoints are listed as completed: %+v", len(all), all)
			}
			// The backend merges files now and then, and those are new.
			if isIncremental && less*2 < len(all) {
				t.Errorf("%d of %d checkpoints have uploaded less than half of what they are: %+v", less, len(all), all)
			}
			status := c.cancel(job)
			last := c.loaded(status.LastCheckpointPath)
			if (last.shared > 0) != isIncremental {
				t.Errorf("the checkpoint has %d shared files", last.shared)
			}
			c.awaitExactly(job, last)
		})
	}
}

// TestRetainedIncrementalCheckpoint starts jobs from a checkpoint whose files
// are shared: at the same parallelism and at others, with the other backend,
// without claiming it, far beyond the retention of their own; then one that claims it, and deletes
// what it no longer needs.
func TestRetainedIncrementalCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKinds(t, 1_000_000)
	c := start(t, "--taskmanagers", "1", "--slots", "4", "-D", "execution.checkpointing.interval=200ms", "-D", "execution.checkpointing.num-retained=1")
	submit := func(flags ...string) string {
		return c.submit(slices.Concat(flags, k.args(400, "--ballast", "5000"))...)
	}
	pebble := onBackend("pebble")
	old := submit(append(pebble, "--parallelism", "2", "-D", retain)...)
	c.awaitCheckpoint(old, 4)
	path := c.cancel(old).LastCheckpointPath
	checkpoint := c.loaded(path)
	if checkpoint.shared == 0 {
		t.Fatalf("there are no shared files: %+v", checkpoint.names)
	}
	c.awaitExactly(old, checkpoint)
	area := filepath.Join("checkpoints", old)
	before := c.stored(area)
	for _, on := range []struct{ backend, parallelism string }{{"pebble", "2"}, {"pebble", "3"}, {"pebble", "1"}, {"memory", "3"}} {
		job := submit(append(onBackend(on.backend), "--parallelism", on.parallelism, "--from-savepoint", path)...)
		restored := c.await(job, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
		c.awaitCheckpoint(job, restored+5)
		if status := c.cancel(job); status.Restarts != 0 {
			t.Errorf("%v: %d restarts: %s", on, status.Restarts, status.Cause)
		}
		c.awaitExactly(job)
		if after := c.stored(area); len(after) != len(before) || before.Unchanged(after) != nil {
			t.Errorf("%v: the %d files have become %d: %v", on, len(before), len(after), before.Unchanged(after))
		}
	}
	claiming := submit(append(pebble, "--parallelism", "2", "--from-savepoint", path, "--claim-mode", "claim")...)
	restored := c.await(claiming, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
	c.awaitCheckpoint(claiming, restored+3)
	if err := clidriver.Poll(c.ctx, "the claimed checkpoint to be deleted", func() (bool, error) {
		_, err := c.Run(c.ctx, "inspect", path)
		var exit *clidriver.ExitError
		return errors.As(err, &exit) && exit.Code == 4, nil
	}); err != nil {
		t.Error(err)
	}
	if status := c.cancel(claiming); status.Restarts != 0 {
		t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
	}
	c.awaitExactly(claiming)
	c.awaitExactly(old)
}

// TestKilledJobManagerDuringIncrementalCheckpoints kills the JobManager while a
// file that is to be shared is on its way, three times: nothing that a
// checkpoint refers to is lost, and nothing else is left.
func TestKilledJobManagerDuringIncrementalCheckpoints(t *testing.T) {
	t.Parallel()
	k := newKinds(t, 300)
	c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "2", "--slots", "1"}, soon...)...)
	flags := slices.Concat(onBackend("pebble"), []string{"--parallelism", "2", "-D", "execution.checkpointing.num-retained=2", "-D", retain})
	job := c.submit(append(flags, k.args(600, "--ballast", "5000")...)...)
	c.awaitCheckpoint(job, 3)
	for range 3 {
		last := c.statusOf(job).LastCheckpoint
		upload := proxy.hold(insideBody, func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/checkpoints/"+job+"/shared/")
		})
		upload.await(c, "an upload of a shared file")
		process, err := c.Process(c.ctx, "jobmanager")
		c.kill(must(c, process, err).PID)
		upload.release()
		if err := c.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
		c.awaitCheckpoint(job, last+2)
	}
	path := c.cancel(job).LastCheckpointPath
	last := c.loaded(path)
	var entries []string
	var kept []*stateOfCheckpoint
	if err := clidriver.Poll(c.ctx, "two retained checkpoints", func() (bool, error) {
		var err error
		entries, err = filepath.Glob(filepath.Join(c.storeDir(filepath.Join("checkpoints", job)), "chk-*"))
		return len(entries) == 2, err
	}); err != nil {
		t.Fatalf("%v: there are %v", err, entries)
	}
	for _, entry := range entries {
		one := strings.Replace(path, filepath.Base(path), filepath.Base(entry), 1)
		kept = append(kept, c.loaded(one))
	}
	if last.shared == 0 {
		t.Errorf("there are no shared files: %+v", last.names)
	}
	c.awaitExactly(job, kept...)
	next := c.submit(slices.Concat(flags, []string{"--from-savepoint", path}, k.args(fast))...)
	c.awaitStatus(next, cliresult.Finished)
	k.check(t, 2, 2)
	c.awaitExactly(job, kept...)
}
