//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/snapshot"
)

// walks is the input of the program of that name, and where its output goes.
type walks struct {
	records        int
	binary, output string
}

func newWalks(t *testing.T, records int) *walks {
	t.Helper()
	return &walks{records: records, binary: program(t, "test/programs/walks"), output: filepath.Join(t.TempDir(), "output")}
}

func (w *walks) args(more ...string) []string {
	return append([]string{w.binary, "--", "--output", w.output, "--records", itoa(w.records)}, more...)
}

// walksLine is a line of the output.
type walksLine struct {
	Kind  string `json:"kind"`
	Start int    `json:"start"`
	At    int    `json:"at"`
	Count int    `json:"count"`
}

// truth is which places each walk comes to, in order.
func (w *walks) truth() map[int][]int {
	walks := map[int][]int{}
	for start := 1; start <= w.records; start++ {
		at := start
		for at != 1 {
			walks[start] = append(walks[start], at)
			if at%2 == 0 {
				at /= 2
			} else {
				at = 3*at + 1
			}
		}
		walks[start] = append(walks[start], 1)
	}
	return walks
}

// compare says what is wrong with an output. With atLeast lines may come again,
// and counts may be higher; how many lines were too many is returned.
func (w *walks) compare(files flightstruth.Files, atLeast bool) (twice int, err error) {
	type visit struct{ start, at int }
	visits, counts, arrived := map[visit]int{}, map[visit]int{}, map[visit]int{}
	for name, content := range files {
		for raw := range strings.Lines(string(content)) {
			var l walksLine
			if err := json.Unmarshal([]byte(raw), &l); err != nil || !strings.HasSuffix(raw, "\n") {
				return 0, fmt.Errorf("%s has the line %.80q: %w", name, raw, err)
			}
			if l.Kind == "arrived" {
				arrived[visit{l.Start, l.Count}]++
				continue
			}
			visits[visit{l.Start, l.At}]++
			counts[visit{l.Count, l.At}]++
		}
	}
	var wrong []string
	check := func(what string, have map[visit]int, want map[visit]bool) {
		for v, n := range have {
			if !want[v] && !atLeast || !want[v] && what != "count" {
				wrong = append(wrong, fmt.Sprintf("%s %v is not one", what, v))
			}
			if n > 1 && !atLeast {
				wrong = append(wrong, fmt.Sprintf("%s %v comes %d times", what, v, n))
			}
			if what == "visit" {
				twice += n - 1
			}
		}
		for v := range want {
			if have[v] == 0 && (what != "count" || !atLeast) {
				wrong = append(wrong, fmt.Sprintf("%s %v is missing", what, v))
			}
		}
	}
	wantVisits, wantCounts, wantArrived, at := map[visit]bool{}, map[visit]bool{}, map[visit]bool{}, map[int]int{}
	for start, places := range w.truth() {
		wantArrived[visit{start, len(places) - 1}] = true
		for _, place := range places {
			wantVisits[visit{start, place}] = true
			at[place]++
			wantCounts[visit{at[place], place}] = true
		}
	}
	check("visit", visits, wantVisits)
	check("count", counts, wantCounts)
	check("arrival", arrived, wantArrived)
	return twice, wrongIn(wrong)
}

func (w *walks) written(t *testing.T) flightstruth.Files {
	t.Helper()
	files, err := flightstruth.Committed(w.output)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestWalksOracleNoticesFaults: a comparison that finds nothing proves nothing.
func TestWalksOracleNoticesFaults(t *testing.T) {
	t.Parallel()
	w := &walks{records: 6}
	var lines []string
	at := map[int]int{}
	for start, places := range w.truth() {
		for _, place := range places {
			at[place]++
			lines = append(lines, fmt.Sprintf(`{"kind":"visit","start":%d,"at":%d,"count":%d}`, start, place, at[place]))
		}
		lines = append(lines, fmt.Sprintf(`{"kind":"arrived","start":%d,"count":%d}`, start, len(places)-1))
	}
	compare := func(lines []string, atLeast bool) error {
		_, err := w.compare(flightstruth.Files{"part": []byte(strings.Join(lines, "\n") + "\n")}, atLeast)
		return err
	}
	if err := compare(lines, false); err != nil {
		t.Error(err)
	}
	for i, line := range lines {
		without, doubled := slices.Delete(slices.Clone(lines), i, i+1), append(slices.Clone(lines), line)
		if compare(without, false) == nil || compare(without, true) == nil {
			t.Errorf("nobody misses %s", line)
		}
		if compare(doubled, false) == nil {
			t.Errorf("nobody notices %s twice", line)
		}
		if err := compare(doubled, true); err != nil {
			t.Errorf("%s twice: %v", line, err)
		}
	}
}

// TestLoopAcrossTaskManagersKilled kills a TaskManager while records go round
// from one to the other, in the middle of a checkpoint that has some of them.
// Exactly once, the job is then stopped with a savepoint and goes on at another
// parallelism.
func TestLoopAcrossTaskManagersKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"EXACTLY_ONCE", "AT_LEAST_ONCE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			atLeast := mode == "AT_LEAST_ONCE"
			w := newWalks(t, 300)
			c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "4", "--slots", "1"}, soon...)...)
			job := c.submit(slices.Concat([]string{"--parallelism", "2", "-D", "execution.checkpointing.mode=" + mode}, w.args("--delay", "6ms"))...)
			first, stored := c.awaitStored(job, "a checkpoint with records in the loop", 0, func(stored *snapshot.CompletedCheckpoint) bool {
				return inFlightBytes(stored) > 0
			})
			t.Logf("checkpoint %d has %d bytes in flight", first, inFlightBytes(stored))
			upload := proxy.hold(insideBody, isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
			taskManager, _ := c.ownerOf(c.statusOf(job), upload.await(c, "an upload"))
			c.kill(int(taskManager.PID))
			upload.release()
			status := c.await(job, "the next attempt", func(s *cliresult.JobStatus) bool { return s.Restarts > 0 && s.Status == cliresult.Running })
			if status.RestoredCheckpoint < first {
				t.Errorf("restored from %d, %d was complete", status.RestoredCheckpoint, first)
			}
			if atLeast {
				if status = c.awaitStatus(job, cliresult.Finished); status.Restarts != 1 {
					t.Errorf("%d restarts", status.Restarts)
				}
				twice, err := w.compare(w.written(t), true)
				if err != nil {
					t.Error(err)
				}
				t.Logf("%d visits came again", twice)
				c.noFilesLeft(job)
				return
			}
			c.awaitCheckpoint(job, status.RestoredCheckpoint+1)
			path := savepointOf(t, c.run("stop", job))
			stored, err := c.metadataOf(path)
			if must(c, stored, err) == nil || inFlightBytes(stored) == 0 {
				t.Errorf("the savepoint %s has nothing in the loop", path)
			}
			before := w.written(t)
			resumed := c.submit(append([]string{"--parallelism", "3", "--from-savepoint", path}, w.args()...)...)
			c.awaitStatus(resumed, cliresult.Finished)
			after := w.written(t)
			if err := before.Unchanged(after); err != nil {
				t.Error(err)
			}
			if _, err := w.compare(after, false); err != nil {
				t.Error(err)
			}
		})
	}
}
