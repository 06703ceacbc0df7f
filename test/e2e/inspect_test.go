//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/config"
)

// dumped reads the lines of inspect --dump of a keyed state.
func dumped(t *testing.T, printed string) []cliresult.DumpedEntry {
	t.Helper()
	var entries []cliresult.DumpedEntry
	for lines := bufio.NewScanner(strings.NewReader(printed)); lines.Scan(); {
		var e cliresult.DumpedEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		entries = append(entries, e)
	}
	return entries
}

// stateOf finds the one keyed state of a checkpoint.
func stateOf(t *testing.T, s *cliresult.Inspection) (operator, name string, entries int64) {
	t.Helper()
	for _, op := range s.Operators {
		if len(op.States) > 0 {
			return op.UID, op.States[0].Name, op.States[0].Entries
		}
	}
	t.Fatalf("no keyed state in %+v", s)
	return "", "", 0
}

// storageSettings are the flags with which flinkctl reaches the cluster's
// storage by itself.
func (c *cluster) storageSettings() []string {
	c.t.Helper()
	loaded, err := config.Load(filepath.Join(c.Dir, "config.yaml"), nil)
	var flags []string
	for key, value := range must(c, loaded, err).Map() {
		if strings.HasPrefix(key, "s3.") {
			flags = append(flags, "-D", key+"="+value)
		}
	}
	return flags
}

// TestInspectOfASavepointOfPebble reads what was written from a database: it is
// as any other savepoint.
func TestInspectOfASavepointOfPebble(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "1", "--slots", "2")
	output := filepath.Join(t.TempDir(), "output")
	job := c.submit(append(onBackend("pebble"), "--parallelism", "2", program(t, "test/programs/keyedcount"), "--",
		"--output", output, "--records", "1000000", "--keys", "50", "--rate", "1000")...)
	c.awaitCheckpoint(job, 2)
	path := savepointOf(t, c.run("savepoint", job))
	c.cancel(job)
	contains(t, c.run("inspect", path), "savepoint ", "counts", "parallelism 2 of at most 128")
	contains(t, c.run("inspect", "--verify", path), " 0 broken")
	var s cliresult.Inspection
	if err := json.Unmarshal([]byte(c.run("inspect", "-o", "json", path)), &s); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Files {
		if f.Shared || f.Problem != "" {
			t.Errorf("a savepoint has the file %+v", f)
		}
	}
	operator, name, count := stateOf(t, &s)
	entries := dumped(t, c.run("inspect", "--dump", operator+"/"+name, path))
	if operator != "counts" || len(entries) != 50 || count != 50 {
		t.Errorf("%d entries of %s/%s were dumped of %d", len(entries), operator, name, count)
	}
	for _, e := range entries {
		if e.Key == nil || e.Value == nil {
			t.Errorf("entry %+v is not decoded", e)
		}
	}
}

// TestInspectWithoutACluster reads a savepoint and a retained checkpoint with
// nothing but the storage.
func TestInspectWithoutACluster(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		c := start(t, append([]string{"--taskmanagers", "1", "--slots", "2"}, flags...)...)
		f := newFlights(t, 8000)
		job := c.submit(append([]string{"--parallelism", "2", "-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"},
			f.args(t, 1000)...)...)
		c.awaitCheckpoint(job, 2)
		printed, err := c.Run(c.ctx, "savepoint", job)
		savepoint := savepointOf(t, must(c, printed, err))
		if _, err := c.Run(c.ctx, "cancel", job); err != nil {
			t.Fatal(err)
		}
		status, err := c.Status(c.ctx, job)
		checkpoint := must(c, status, err).LastCheckpointPath
		settings := c.storageSettings()
		for path, kind := range map[string]string{savepoint: "savepoint", checkpoint: "checkpoint"} {
			// An address at which nobody listens: inspect asks no JobManager.
			run := func(args ...string) string {
				t.Helper()
				printed, err := c.Driver.Run(c.ctx, append(append([]string{"inspect", "--jobmanager", "127.0.0.1:1"}, settings...), append(args, path)...)...)
				return must(c, printed, err)
			}
			var s cliresult.Inspection
			if err := json.Unmarshal([]byte(run("-o", "json")), &s); err != nil {
				t.Fatal(err)
			}
			if s.Kind != kind || s.Job != job || len(s.Operators) == 0 || s.Bytes == 0 || len(s.Files) == 0 {
				t.Errorf("%s is %+v", path, s)
			}
			contains(t, run(), kind+" ", "parallelism 2 of at most 128", "splits: ")
			contains(t, run("--verify"), " 0 broken")
			operator, name, count := stateOf(t, &s)
			entries := dumped(t, run("--dump", operator+"/"+name))
			if int64(len(entries)) != count || count == 0 {
				t.Errorf("%d entries were dumped of %d", len(entries), count)
			}
			for _, e := range entries {
				if e.Key == nil || e.Value == nil {
					t.Errorf("entry %+v is not decoded", e)
				}
			}
			if dir, local := strings.CutPrefix(path, "file://"); local || filepath.IsAbs(path) {
				name := filepath.Join(dir, s.Files[0].Name)
				if kind == "checkpoint" {
					name = filepath.Join(filepath.Dir(dir), s.Files[0].Name)
				}
				if err := os.Truncate(name, s.Files[0].Bytes-1); err != nil {
					t.Fatal(err)
				}
				contains(t, c.refusal(1, append(append([]string{"inspect"}, settings...), "--verify", path)...), "error: 1 of ", s.Files[0].Name)
			}
		}
	})
}
