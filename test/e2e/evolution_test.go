//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

// Of the input of the evolves program.
const (
	evolvesKeys = 20
	evolvesEach = 250
)

// evolvesLine is a line of the program's output.
type evolvesLine struct {
	Key   int `json:"key"`
	Count int `json:"count"`
	Sum   int `json:"sum"`
	Worst int `json:"worst"`
	Since int `json:"since"`
	Seen  int `json:"seen"`
}

// checkEvolved wants every record of every key once, the last ones as the last
// version makes them.
func checkEvolved(t *testing.T, last, output string) {
	t.Helper()
	lines := map[int][]evolvesLine{}
	files, err := flightstruth.Committed(output)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		for raw := range strings.Lines(string(content)) {
			var l evolvesLine
			if err := json.Unmarshal([]byte(raw), &l); err != nil {
				t.Fatalf("%s has the line %q: %v", name, raw, err)
			}
			lines[l.Key] = append(lines[l.Key], l)
		}
	}
	changed := 0
	for key := range evolvesKeys {
		of := lines[key]
		slices.SortFunc(of, func(a, b evolvesLine) int { return a.Count - b.Count })
		if len(of) != evolvesEach {
			t.Errorf("key %d has %d lines, want %d", key, len(of), evolvesEach)
		}
		want := evolvesLine{Key: key}
		for n, l := range of {
			w := (n*31 + key*17) % 1009
			want.Count++
			want.Seen = want.Count
			want.Sum += w
			want.Worst = max(want.Worst, w)
			switch {
			case last == "second" && (l.Since > 0 || want.Since > 0):
				want.Since++ // from 1 on: the field is new
				changed++
			case last == "dropped" && l.Seen == -1:
				want.Seen = -1
				changed++
			}
			if l != want {
				t.Fatalf("key %d has %+v, want %+v", key, l, want)
			}
		}
	}
	if changed == 0 || changed == evolvesKeys*evolvesEach {
		t.Errorf("%d lines of %d are of the changed program", changed, evolvesKeys*evolvesEach)
	}
}

// TestProgramChangesItsState stops a job and goes on with another version of
// its program: with one that adds, removes, renames, widens and moves fields,
// with one that drops a state; one that cannot take the state is refused.
func TestProgramChangesItsState(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		binary, output, other := program(t, "test/programs/evolves"), filepath.Join(t.TempDir(), "output"), filepath.Join(t.TempDir(), "other")
		c := start(t, "--taskmanagers", "1", "--slots", "3")
		args := func(version, output string, rate int) []string {
			return []string{binary, "--", "--version", version, "--output", output, "--rate", itoa(rate),
				"--keys", itoa(evolvesKeys), "--records", itoa(evolvesKeys * evolvesEach)}
		}
		first := c.submit(slices.Concat(onBackend(backend), []string{"--parallelism", "2"}, args("first", output, 300))...)
		c.awaitCheckpoint(first, 2)
		path := savepointOf(t, c.run("stop", first))
		from := append(onBackend(backend), "--from-savepoint", path)

		// What cannot be read is refused, by a dry run and by a submission.
		for _, verb := range [][]string{{"submit", "--dry-run"}, {"submit", "--detached"}} {
			stderr := c.refusal(7, slices.Concat(verb, from, args("incompatible", output, 0))...)
			contains(t, stderr, `operator "stats": state "stats"`, "field Count was int32 and is string")
			stderr = c.refusal(7, slices.Concat(verb, from, args("dropped", output, 0))...)
			contains(t, stderr, `state "seen" of operator "stats"`, "hint: --allow-non-restored-state")
			stderr = c.refusal(7, slices.Concat(verb, from, args("incompatible-list", output, 0))...)
			contains(t, stderr, `operator "marks": state "list/keys"`, "field N was uint32 and is string")
			stderr = c.refusal(7, slices.Concat(verb, from, args("incompatible-map", output, 0))...)
			contains(t, stderr, `operator "marks": state "limits"`, "field N was uint32 and is string")
		}
		var jobs []cliresult.Job
		if err := c.Read(c.ctx, &jobs, "list", "--all"); err != nil || len(jobs) != 1 {
			t.Errorf("a refused submission left a job: %v, %v", jobs, err)
		}

		plan := func(version string, flags ...string) map[string]cliresult.RestoredState {
			t.Helper()
			var p cliresult.RestorePlan
			if err := json.Unmarshal([]byte(c.run(slices.Concat([]string{"submit", "-o", "json", "--dry-run"}, flags, from, args(version, output, 0))...)), &p); err != nil {
				t.Fatal(err)
			}
			states := map[string]cliresult.RestoredState{}
			for _, s := range p.States {
				states[s.Operator+"/"+s.State] = s
			}
			return states
		}
		states := plan("second")
		if stats, seen := states["stats/stats"], states["stats/seen"]; stats.Match != "migrated" || len(stats.Changes) != 5 || seen.Match != "matches" {
			t.Errorf("the plan is %+v", states)
		}
		for _, name := range []string{"marks/list/keys", "marks/limits"} {
			if s := states[name]; s.Match != "migrated" || len(s.Changes) != 4 || !slices.Contains(s.Changes, "removed Gone string") {
				t.Errorf("the plan has %s as %+v", name, s)
			}
		}
		contains(t, c.run(slices.Concat([]string{"submit", "--dry-run"}, from, args("second", output, 0))...),
			"CHANGES", "migrated", "Since", "Carrier", "DelaySum", "int32", "int64", "float64")
		if s := plan("dropped", "--allow-non-restored-state"); s["stats/seen"].Match != "dropped" || s["stats/stats"].Match != "matches" ||
			s["marks/flags"].Match != "dropped" || s["marks/limits"].Match != "matches" || s["marks/list/keys"].Match != "matches" {
			t.Errorf("the plan is %+v", s)
		}

		// What the savepoint's job has committed has to be where a sink writes.
		if err := os.CopyFS(other, os.DirFS(output)); err != nil {
			t.Fatal(err)
		}
		dropping := c.submit(slices.Concat([]string{"--allow-non-restored-state", "--parallelism", "1"}, from, args("dropped", other, 0))...)
		if status := c.awaitStatus(dropping, cliresult.Finished); status.Restarts != 0 {
			t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
		}
		checkEvolved(t, "dropped", other)

		// A checkpoint of the second version has values that the first one stored.
		second := c.submit(slices.Concat([]string{"--parallelism", "3", "-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"},
			from, args("second", output, 300))...)
		restored := c.await(second, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
		c.awaitCheckpoint(second, restored+2)
		status := c.cancel(second)
		if status.Restarts != 0 {
			t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
		}
		from = append(onBackend(backend), "--from-savepoint", status.LastCheckpointPath)
		last := c.submit(slices.Concat([]string{"--parallelism", "2"}, from, args("second", output, 0))...)
		if status := c.awaitStatus(last, cliresult.Finished); status.Restarts != 0 {
			t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
		}
		checkEvolved(t, "second", output)
	})
}
