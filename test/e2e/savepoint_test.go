//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

// savepointOf reads what scripts read of savepoint and stop: the last line.
func savepointOf(t *testing.T, printed string) string {
	t.Helper()
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	path, ok := strings.CutPrefix(lines[len(lines)-1], "savepoint: ")
	if !ok || path == "" {
		t.Fatalf("the last line is not the savepoint's path: %q", printed)
	}
	return path
}

func TestStopAndResumeAtAnotherParallelism(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		c := start(t, append([]string{"--taskmanagers", "2", "--slots", "2"}, flags...)...)
		f := newFlights(t, 6000)
		job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
		c.awaitCheckpoint(job, 2)
		printed, err := c.Run(c.ctx, "stop", job)
		path := savepointOf(t, must(c, printed, err))
		if !strings.Contains(path, "://") && !filepath.IsAbs(path) {
			t.Errorf("savepoint %s is neither absolute nor a URI", path)
		}
		// All that was read before the savepoint is committed when stop returns, and nothing else ever.
		before := f.committed(t)
		status, err := c.Status(c.ctx, job)
		if must(c, status, err).Status != cliresult.Finished {
			t.Errorf("the stopped job is %s", status.Status)
		}
		if lines := before.Lines(); lines == 0 || lines >= f.truth.Records {
			t.Errorf("the job was stopped after %d of %d records", lines, f.truth.Records)
		}
		resumed := c.submit(append([]string{"--parallelism", "3", "--from-savepoint", path}, f.args(t, 0)...)...)
		c.awaitStatus(resumed, cliresult.Finished)
		if err := before.Unchanged(f.committed(t)); err != nil {
			t.Error(err)
		}
		f.check(t)
	})
}

func TestSavepointOfARunningJob(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2")
	f := newFlights(t, 8000)
	job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
	c.awaitCheckpoint(job, 2)
	// A relative directory is below where flinkctl runs, not below where the JobManager does.
	dir := t.TempDir()
	c.Driver.Dir = dir
	printed, err := c.Run(c.ctx, "savepoint", job, "sp")
	path := savepointOf(t, must(c, printed, err))
	if real, err := filepath.EvalSymlinks(dir); err != nil || !strings.Contains(path, filepath.Join(real, "sp")) && !strings.Contains(path, filepath.Join(dir, "sp")) {
		t.Errorf("savepoint %s is not below %s, %v", path, dir, err)
	}
	// A savepoint commits nothing: what it prepared is in the next checkpoint.
	status, err := c.Status(c.ctx, job)
	after := must(c, status, err).LastCheckpoint
	c.await(job, "a checkpoint after the savepoint", func(s *cliresult.JobStatus) bool { return s.LastCheckpoint > after+1 })
	if _, err := c.Run(c.ctx, "cancel", job); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(strings.TrimPrefix(path, "file://"), moved); err != nil {
		t.Fatal(err)
	}
	resumed := c.submit(append([]string{"--parallelism", "4", "--from-savepoint", moved}, f.args(t, 0)...)...)
	c.awaitStatus(resumed, cliresult.Finished)
	// The resumed job counts on from the savepoint, so that the first one's lines
	// behind it come again: without them the two outputs are exact together.
	files := f.committed(t)
	second := flightstruth.Files{}
	for name, content := range files {
		if strings.Contains(name, resumed) {
			second[name] = content
		}
	}
	starts := firstCounts(t, second)
	for name, content := range files {
		if strings.Contains(name, job) {
			files[name] = linesBefore(t, content, starts)
		}
	}
	result, err := f.truth.Check(files)
	if err := must(c, result, err).Error(); err != nil {
		t.Error(err)
	}
}

type countLine struct {
	Origin  string `json:"origin"`
	Flights int    `json:"flights"`
}

// firstCounts are the lowest counts of each origin.
func firstCounts(t *testing.T, files flightstruth.Files) map[string]int {
	t.Helper()
	first := map[string]int{}
	for _, content := range files {
		for line := range bytes.Lines(content) {
			var l countLine
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			if known, ok := first[l.Origin]; !ok || l.Flights < known {
				first[l.Origin] = l.Flights
			}
		}
	}
	return first
}

// linesBefore keeps the lines whose count is below their origin's start.
func linesBefore(t *testing.T, content []byte, starts map[string]int) []byte {
	t.Helper()
	var kept []byte
	for line := range bytes.Lines(content) {
		var l countLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if start, ok := starts[l.Origin]; !ok || l.Flights < start {
			kept = append(kept, line...)
		}
	}
	return kept
}
