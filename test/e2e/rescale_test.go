//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

// onBackend chooses a job's state backend.
func onBackend(backend string) []string { return []string{"-D", "state.backend.type=" + backend} }

// parallelisms are those of the operators of the kinds program.
type parallelisms struct{ source, keyed, plain, sink int }

func (p parallelisms) flags() []string {
	return []string{"--source-parallelism", itoa(p.source), "--keyed-parallelism", itoa(p.keyed), "--plain-parallelism", itoa(p.plain), "--sink-parallelism", itoa(p.sink)}
}

// cancel cancels a job and waits until it is.
func (c *cluster) cancel(job string) *cliresult.JobStatus {
	c.t.Helper()
	if _, err := c.Run(c.ctx, "cancel", job); err != nil {
		c.t.Fatal(err)
	}
	return c.awaitStatus(job, cliresult.Canceled)
}

// storeDir is the local directory in which the cluster's storage keeps what is
// below a name: the S3 server keeps its objects as files too.
func (c *cluster) storeDir(name string) string {
	if dir := filepath.Join(c.Dir, "s3", "weir"); isDirectory(dir) {
		return filepath.Join(dir, name)
	}
	return filepath.Join(c.Dir, name)
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// stored reads all files of the cluster's storage below a name.
func (c *cluster) stored(name string) flightstruth.Files {
	c.t.Helper()
	files, err := flightstruth.Committed(c.storeDir(name))
	return must(c, files, err)
}

// opener reaches any storage with the cluster's configuration.
func (c *cluster) opener() *open.Opener {
	c.t.Helper()
	loaded, err := config.Load(filepath.Join(c.Dir, "config.yaml"), nil)
	settings := must(c, loaded, err)
	return open.New(open.Options{S3: s3.Options{
		Endpoint: config.S3Endpoint.Get(settings), AccessKey: config.S3AccessKey.Get(settings),
		SecretKey: config.S3SecretKey.Get(settings), PathStyle: config.S3PathStyleAccess.Get(settings),
	}})
}

// moveDirectory copies all objects below one path or URI to another, and
// removes the original.
func (c *cluster) moveDirectory(from, to string) {
	c.t.Helper()
	opener := c.opener()
	defer opener.Close()
	source, err := opener.Open(from)
	source = must(c, source, err)
	target, err := opener.Open(to)
	target = must(c, target, err)
	var names []string
	for object, err := range source.List(c.ctx, "") {
		names = append(names, must(c, object, err).Name)
	}
	if len(names) < 2 {
		c.t.Fatalf("%s has only %v", from, names)
	}
	for _, name := range names {
		if err := copyObject(c.ctx, source, target, name); err != nil {
			c.t.Fatal(err)
		}
		if err := source.Delete(c.ctx, name); err != nil {
			c.t.Fatal(err)
		}
	}
}

func copyObject(ctx context.Context, source, target objectstore.Store, name string) error {
	return target.Put(ctx, name, func(w io.Writer) error {
		r, err := source.Open(ctx, name)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return errors.Join(err, r.Close())
	})
}

// TestRescaleKeepsEveryKindOfState stops a job again and again, and goes on at
// another parallelism of each operator: from savepoints, from one that has been
// moved elsewhere, and from a retained checkpoint.
func TestRescaleKeepsEveryKindOfState(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		k := newKinds(t, 200)
		c := start(t, append([]string{"--taskmanagers", "2", "--slots", "3", "-D", "execution.checkpointing.interval=300ms"}, flags...)...)
		moved := "file://" + filepath.Join(t.TempDir(), "moved")
		other := "file://" + filepath.Join(t.TempDir(), "other")
		if len(flags) > 0 {
			moved, other = "s3://weir/elsewhere/moved", "s3://weir/other"
		}
		var from []string
		// Savepoints move between backends, a retained checkpoint does not.
		on := []string{"memory", "pebble", "pebble", "memory", "pebble"}
		for generation, p := range []parallelisms{{2, 2, 2, 2}, {1, 3, 1, 2}, {4, 1, 3, 1}, {3, 5, 2, 4}, {2, 2, 4, 3}} {
			args := slices.Concat([]string{"-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"}, onBackend(on[generation]), from)
			if generation == 4 {
				last := c.submit(slices.Concat(args, k.args(fast, p.flags()...))...)
				if status := c.awaitStatus(last, cliresult.Finished); status.Restarts != 0 {
					t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
				}
				k.check(t, p.keyed, p.plain)
				break
			}
			job := c.submit(slices.Concat(args, k.args(400, p.flags()...))...)
			restored := c.await(job, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
			status := c.awaitCheckpoint(job, restored+2)
			var path string
			switch generation {
			case 1:
				path = c.cancel(job).LastCheckpointPath
			case 2:
				path = savepointOf(t, c.run("stop", job, "--savepoint-dir", other))
				contains(t, path, strings.TrimPrefix(other, "file://"))
			default:
				path = savepointOf(t, c.run("stop", job))
				c.moveDirectory(path, moved+itoa(generation))
				path = moved + itoa(generation)
			}
			if status.Restarts != 0 {
				t.Errorf("generation %d: %d restarts: %s", generation, status.Restarts, status.Cause)
			}
			from = []string{"--from-savepoint", path}
			contains(t, c.refusal(7, slices.Concat([]string{"submit", "--dry-run", "-D", "pipeline.max-parallelism=96"}, from, k.args(0))...),
				"max parallelism 128", "has 96")
		}
	})
}

// run runs flinkctl, which has to succeed.
func (c *cluster) run(args ...string) string {
	c.t.Helper()
	printed, err := c.Run(c.ctx, args...)
	return must(c, printed, err)
}

// TestStopCommitsUpToTheSavepointAndNothingBehind counts what is committed
// when stop returns, and compares it with what the savepoint holds.
func TestStopCommitsUpToTheSavepointAndNothingBehind(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		binary, output := program(t, "test/programs/keyedcount"), filepath.Join(t.TempDir(), "output")
		c := start(t, "--taskmanagers", "2", "--slots", "2")
		job := c.submit(slices.Concat(onBackend(backend), []string{"--parallelism", "3", binary, "--", "--output", output, "--rate", "3000", "--records", "1000000", "--keys", "50"})...)
		c.awaitCheckpoint(job, 2)
		path := savepointOf(t, c.run("stop", job))
		before, err := flightstruth.Committed(output)
		lines := must(c, before, err).Lines()
		var counted int
		for _, e := range dumped(t, c.run("inspect", "--dump", "counts/reduce", path)) {
			var v struct{ Count int }
			if err := json.Unmarshal(e.Value, &v); err != nil {
				t.Fatal(err)
			}
			counted += v.Count
		}
		if lines != counted || lines == 0 {
			t.Errorf("%d lines are committed, the savepoint has counted %d records", lines, counted)
		}
		// The JobManager goes through what the job left when it starts again.
		process, err := c.Process(c.ctx, "jobmanager")
		c.kill(must(c, process, err).PID)
		if err := c.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
		after, err := flightstruth.Committed(output)
		if err := before.Unchanged(must(c, after, err)); err != nil || len(after) != len(before) {
			t.Errorf("%d files have become %d: %v", len(before), len(after), err)
		}
	})
}

// awaitOnlyRetained waits until what the job left behind and does not retain is
// deleted, which goes on behind its end: n checkpoints stay, the given one among them.
func (c *cluster) awaitOnlyRetained(job, checkpoint string, n int) {
	c.t.Helper()
	var left []string
	if err := clidriver.Poll(c.ctx, "what is not retained to be deleted", func() (bool, error) {
		names, err := c.storedNames(filepath.Join("checkpoints", job))
		left = nil
		for _, name := range names {
			dir := filepath.Base(filepath.Dir(name))
			if !slices.Contains(left, dir) {
				left = append(left, dir)
			}
		}
		return len(left) == n && slices.Contains(left, filepath.Base(checkpoint)), err
	}); err != nil {
		c.t.Fatalf("%v: there are %v", err, left)
	}
}

// storedNames lists the files of the cluster's storage below a name, while
// some of them may be deleted.
func (c *cluster) storedNames(name string) (names []string, err error) {
	err = filepath.WalkDir(c.storeDir(name), func(name string, entry os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // deleted at this moment
		}
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// TestNoClaimLeavesTheOldJobsFilesAlone starts jobs from a savepoint and from a
// retained checkpoint without claiming them, far beyond their own retention,
// and compares every byte that the old jobs had left. Then it claims both.
func TestNoClaimLeavesTheOldJobsFilesAlone(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		k := newKinds(t, 1_000_000)
		c := start(t, append([]string{"--taskmanagers", "1", "--slots", "4", "-D", "execution.checkpointing.interval=100ms",
			"-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"}, flags...)...)
		old := c.submit(append([]string{"--parallelism", "2"}, k.args(1000)...)...)
		c.awaitCheckpoint(old, 2)
		savepoint := savepointOf(t, c.run("savepoint", old))
		c.awaitCheckpoint(old, 4)
		checkpoint := c.cancel(old).LastCheckpointPath
		areas := map[string]string{savepoint: "savepoints", checkpoint: filepath.Join("checkpoints", old)}
		c.awaitOnlyRetained(old, checkpoint, 2)
		before := map[string]flightstruth.Files{}
		for path, area := range areas {
			if before[path] = c.stored(area); len(before[path]) < 2 {
				t.Fatalf("%s has %d files", area, len(before[path]))
			}
		}
		for path := range areas {
			for _, mode := range []string{"no-claim", "claim"} {
				job := c.submit(append([]string{"-D", "execution.checkpointing.num-retained=1", "--parallelism", "3", "--from-savepoint", path, "--claim-mode", mode}, k.args(1000)...)...)
				restored := c.await(job, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
				c.awaitCheckpoint(job, restored+3)
				if mode == "claim" {
					if err := clidriver.Poll(c.ctx, "the claimed "+path+" to be deleted", func() (bool, error) {
						_, err := c.Run(c.ctx, append([]string{"inspect", path}, c.storageSettings()...)...)
						var exit *clidriver.ExitError
						return errors.As(err, &exit) && exit.Code == 4, nil
					}); err != nil {
						t.Error(err)
					}
				}
				c.cancel(job)
				if mode == "no-claim" {
					for path, files := range before {
						if after := c.stored(areas[path]); len(after) != len(files) || files.Unchanged(after) != nil {
							t.Errorf("the %d files of %s have become %d: %v", len(files), path, len(after), files.Unchanged(after))
						}
					}
				}
			}
			delete(before, path)
		}
	})
}
