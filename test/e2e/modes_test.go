//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

// pressed is the input of the program of that name, and where its output goes.
type pressed struct {
	records, early, keys int
	binary, output       string
}

func newPressed(t *testing.T, records, early int) *pressed {
	t.Helper()
	return &pressed{records: records, early: early, keys: 50, binary: program(t, "test/programs/pressed"), output: filepath.Join(t.TempDir(), "output")}
}

// args are the program and its arguments.
func (p *pressed) args(more ...string) []string {
	return append([]string{p.binary, "--", "--output", p.output, "--records", itoa(p.records), "--early", itoa(p.early), "--keys", itoa(p.keys)}, more...)
}

type pressedLine struct {
	Kind  string `json:"kind"`
	N     int    `json:"n"`
	Key   int    `json:"key"`
	Count int    `json:"count"`
}

// pressedLines is what was written, counted.
type pressedLines struct {
	numbers map[int]int         // lines of each number
	counts  map[int]map[int]int // lines of each count, by key
	timers  map[int][]int       // what the timers of each key have counted
}

func readPressed(files flightstruth.Files) (*pressedLines, error) {
	l := &pressedLines{numbers: map[int]int{}, counts: map[int]map[int]int{}, timers: map[int][]int{}}
	for name, content := range files {
		for raw := range strings.Lines(string(content)) {
			var line pressedLine
			if err := json.Unmarshal([]byte(raw), &line); err != nil || !strings.HasSuffix(raw, "\n") {
				return nil, fmt.Errorf("%s has the line %.80q: %w", name, raw, err)
			}
			if line.Kind == "timer" {
				l.timers[line.Key] = append(l.timers[line.Key], line.Count)
				continue
			}
			l.numbers[line.N]++
			if l.counts[line.Key] == nil {
				l.counts[line.Key] = map[int]int{}
			}
			l.counts[line.Key][line.Count]++
		}
	}
	return l, nil
}

func (p *pressed) written(t *testing.T) *pressedLines {
	t.Helper()
	files, err := flightstruth.Committed(p.output)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := readPressed(files)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// once says where numbers were counted more or less than once: those that are
// written have the counts 1, 2, 3, … of their keys.
func (l *pressedLines) once() error {
	var wrong []string
	written := map[int]int{}
	for n, lines := range l.numbers {
		if lines != 1 {
			wrong = append(wrong, fmt.Sprintf("%d lines of the number %d", lines, n))
		}
	}
	for key, counts := range l.counts {
		for count, lines := range counts {
			written[key] += lines
			if lines != 1 {
				wrong = append(wrong, fmt.Sprintf("key %d: %d lines of the count %d", key, lines, count))
			}
		}
		if len(counts) != written[key] || counts[written[key]] != 1 {
			wrong = append(wrong, fmt.Sprintf("key %d: %d numbers, %d counts of which %d is not the last", key, written[key], len(counts), written[key]))
		}
	}
	return wrongIn(wrong)
}

// fired says where not one timer of each key has fired, behind its last number.
func (l *pressedLines) fired() error {
	var wrong []string
	for key, counts := range l.counts {
		if timers := l.timers[key]; len(timers) != 1 || timers[0] != len(counts) {
			wrong = append(wrong, fmt.Sprintf("key %d: %d numbers, timers at %v", key, len(counts), timers))
		}
	}
	return wrongIn(wrong)
}

// missing are the numbers that were not written, and how many lines there are
// too many.
func (l *pressedLines) missing(p *pressed) (missing []int, twice int) {
	for n := range p.records + p.early {
		if l.numbers[n] == 0 {
			missing = append(missing, n)
		}
		twice += max(0, l.numbers[n]-1)
	}
	return missing, twice
}

func wrongIn(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("the output is wrong in %d places, among them: %s", len(wrong), strings.Join(wrong[:min(10, len(wrong))], "; "))
}

// check compares the output of a job that has ended by itself with what it has to be.
func (p *pressed) check(t *testing.T) {
	t.Helper()
	lines := p.written(t)
	missing, _ := lines.missing(p)
	if len(missing) > 0 {
		t.Errorf("%d numbers are missing, among them %v", len(missing), missing[:min(10, len(missing))])
	}
	if err := errors.Join(lines.once(), lines.fired()); err != nil {
		t.Error(err)
	}
}

// TestPressedOracleNoticesFaults: a comparison that finds nothing proves nothing.
func TestPressedOracleNoticesFaults(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"kind":"record","n":0,"key":0,"count":1}`, `{"kind":"record","n":1,"key":1,"count":1}`, `{"kind":"record","n":2,"key":0,"count":2}`,
		`{"kind":"timer","n":0,"key":0,"count":2}`, `{"kind":"timer","n":0,"key":1,"count":1}`,
	}
	faults := func(lines []string) error {
		l, err := readPressed(flightstruth.Files{"part": []byte(strings.Join(lines, "\n") + "\n")})
		if err != nil {
			return err
		}
		if missing, _ := l.missing(&pressed{records: 2, early: 1}); len(missing) > 0 {
			return fmt.Errorf("%v are missing", missing)
		}
		return errors.Join(l.once(), l.fired())
	}
	if err := faults(lines); err != nil {
		t.Error(err)
	}
	for i, line := range lines {
		if faults(slices.Delete(slices.Clone(lines), i, i+1)) == nil {
			t.Errorf("nobody misses %s", line)
		}
		if faults(append(slices.Clone(lines), line)) == nil {
			t.Errorf("nobody notices %s twice", line)
		}
	}
}

// metadataOf reads a checkpoint that may be deleted at any time: then it is nil.
func (c *cluster) metadataOf(path string) (*snapshot.CompletedCheckpoint, error) {
	opener := c.opener()
	defer opener.Close()
	checkpoint, _, err := checkpointstore.New(opener.Open).LoadMetadata(c.ctx, path)
	if errors.Is(err, objectstore.ErrNotExist) {
		return nil, nil
	}
	return checkpoint, err
}

// inFlightBytes are those of the records that a checkpoint's barriers overtook.
func inFlightBytes(checkpoint *snapshot.CompletedCheckpoint) (n int64) {
	for _, in := range checkpoint.InFlight {
		n += in.Handle.Size
	}
	return n
}

// awaitStored waits for a checkpoint after that one with a condition on what is
// stored of it, while the job runs, and returns its number.
func (c *cluster) awaitStored(job, what string, after uint64, wanted func(*snapshot.CompletedCheckpoint) bool) (uint64, *snapshot.CompletedCheckpoint) {
	c.t.Helper()
	var id uint64
	var stored *snapshot.CompletedCheckpoint
	if err := clidriver.Poll(c.ctx, what, func() (bool, error) {
		status, err := c.Status(c.ctx, job)
		if err != nil || status.Status != cliresult.Running || status.LastCheckpoint <= after {
			return false, err
		}
		id = status.LastCheckpoint
		stored, err = c.metadataOf(status.LastCheckpointPath)
		return err == nil && stored != nil && wanted(stored), err
	}); err != nil {
		c.t.Fatal(err)
	}
	return id, stored
}

// slowly makes the channels of the pressed program full: what is in them takes
// seconds.
var slowly = []string{"--delay", "12ms", "--fill", "20"}

// TestUnalignedKilledAndRescaled: under back-pressure barriers overtake records,
// at once or after a time; a process is killed while those are written, the job
// goes on from a checkpoint that has them, and from a retained one at another
// parallelism.
func TestUnalignedKilledAndRescaled(t *testing.T) {
	t.Parallel()
	const timeout = 400 * time.Millisecond
	for name, flags := range map[string][]string{
		"at once":      nil,
		"after a time": {"-D", "execution.checkpointing.aligned-checkpoint-timeout=" + timeout.String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPressed(t, 40_000, 0)
			c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "4", "--slots", "1"}, soon...)...)
			job := c.submit(slices.Concat([]string{"--parallelism", "2", "-D", "execution.checkpointing.unaligned.enabled=true",
				"-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"}, flags, p.args(slowly...))...)
			overtaken := func(stored *snapshot.CompletedCheckpoint) bool { return inFlightBytes(stored) > 0 }
			first, stored := c.awaitStored(job, "a checkpoint with records in flight", 0, overtaken)
			took := stored.CompletedAt.Sub(stored.TriggeredAt)
			t.Logf("checkpoint %d has %d bytes in flight and took %s", first, inFlightBytes(stored), took)
			if flags != nil && took < timeout {
				t.Errorf("checkpoint %d overtook records after %s, not %s", first, took, timeout)
			}
			upload := proxy.hold(insideBody, isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
			_, executor := c.ownerOf(c.statusOf(job), upload.await(c, "an upload"))
			c.kill(executor)
			upload.release()
			status := c.await(job, "the next attempt", func(s *cliresult.JobStatus) bool { return s.Restarts > 0 && s.Status == cliresult.Running })
			if status.RestoredCheckpoint < first {
				t.Errorf("restored from %d, %d was complete", status.RestoredCheckpoint, first)
			}
			c.awaitStored(job, "a checkpoint with records in flight after the restart", status.RestoredCheckpoint, overtaken)
			ended := c.cancel(job)
			retainedPath := ended.LastCheckpointPath
			stored, err := c.metadataOf(retainedPath)
			if must(c, stored, err) == nil || !overtaken(stored) {
				t.Fatalf("the retained checkpoint %s has nothing in flight", retainedPath)
			}
			if missing, _ := p.written(t).missing(p); len(missing) == 0 {
				t.Error("the job was cancelled too late: nothing is left to restore")
			}
			resumed := c.submit(append([]string{"--parallelism", "3", "--from-savepoint", retainedPath}, p.args()...)...)
			if status := c.awaitStatus(resumed, cliresult.Finished); status.RestoredCheckpoint != ended.LastCheckpoint {
				t.Errorf("restored from %d, retained was %d", status.RestoredCheckpoint, ended.LastCheckpoint)
			}
			p.check(t)
		})
	}
}

// TestAtLeastOnceKilled: nothing is lost, and what comes twice is counted.
func TestAtLeastOnceKilled(t *testing.T) {
	t.Parallel()
	p := newPressed(t, 16_000, 0)
	c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "3", "--slots", "1"}, soon...)...)
	job := c.submit(slices.Concat([]string{"--parallelism", "2", "-D", "execution.checkpointing.mode=AT_LEAST_ONCE"}, p.args(slowly...))...)
	first := c.awaitCheckpoint(job, 1).LastCheckpoint
	upload := proxy.hold(insideBody, isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
	_, executor := c.ownerOf(c.statusOf(job), upload.await(c, "an upload"))
	c.kill(executor)
	upload.release()
	status := c.awaitStatus(job, cliresult.Finished)
	if status.Restarts != 1 || status.RestoredCheckpoint < first {
		t.Errorf("%d restarts, restored from %d when %d was complete", status.Restarts, status.RestoredCheckpoint, first)
	}
	lines := p.written(t)
	missing, twice := lines.missing(p)
	if len(missing) > 0 {
		t.Errorf("%d numbers are lost, among them %v", len(missing), missing[:min(10, len(missing))])
	}
	t.Logf("%d of %d numbers came again", twice, p.records)
	for key, timers := range lines.timers {
		if len(timers) != 1 {
			t.Errorf("key %d: timers at %v", key, timers)
		}
	}
	c.noFilesLeft(job)
}

// TestFinishedSourceBesideARunningOne: checkpoints go on when a source has come
// to its end, a restart does not read it again, and the last checkpoint commits
// everything.
func TestFinishedSourceBesideARunningOne(t *testing.T) {
	t.Parallel()
	p := newPressed(t, 8000, 3000)
	c := start(t, append([]string{"--taskmanagers", "3", "--slots", "1"}, soon...)...)
	job := c.submit(append([]string{"--parallelism", "2"}, p.args("--rate", "1000")...)...)
	first, _ := c.awaitStored(job, "a checkpoint behind the end of the early source", 0, func(stored *snapshot.CompletedCheckpoint) bool {
		return slices.ContainsFunc(stored.EndOfData, func(e snapshot.EndedSubtask) bool { return e.UID == "early" })
	})
	c.awaitCheckpoint(job, first+1)
	c.kill(int(c.runsSubtasks(c.statusOf(job)).PID))
	restarted := c.await(job, "the next attempt", func(s *cliresult.JobStatus) bool { return s.Restarts > 0 && s.Status == cliresult.Running })
	if restarted.RestoredCheckpoint < first {
		t.Errorf("restored from %d, %d was complete", restarted.RestoredCheckpoint, first)
	}
	c.awaitCheckpoint(job, restarted.RestoredCheckpoint+1)
	status := c.awaitStatus(job, cliresult.Finished)
	if status.Restarts != 1 {
		t.Errorf("%d restarts", status.Restarts)
	}
	if last := c.checkpoints(job).Checkpoints[0]; last.Kind != "final-checkpoint" || last.Status != cliresult.CheckpointCompleted || last.ID != status.LastCheckpoint {
		t.Errorf("the last checkpoint is %+v, the job's %d", last, status.LastCheckpoint)
	}
	p.check(t)
	c.noFilesLeft(job)
}

// TestStopWithAndWithoutDrain: a drained job has fired every timer, once, and
// nothing is left of it to do; without, event time goes on where it was.
func TestStopWithAndWithoutDrain(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{true, false} {
		t.Run(fmt.Sprintf("drain=%v", drained), func(t *testing.T) {
			t.Parallel()
			p := newPressed(t, 12_000, 500)
			c := start(t, append([]string{"--taskmanagers", "2", "--slots", "2"}, soon...)...)
			job := c.submit(append([]string{"--parallelism", "2"}, p.args("--rate", "1000")...)...)
			c.awaitCheckpoint(job, 2)
			args := []string{"stop", job}
			if drained {
				args = append(args, "--drain")
			}
			path := savepointOf(t, c.run(args...))
			if status := c.statusOf(job); status.Status != cliresult.Finished {
				t.Errorf("the stopped job is %s", status.Status)
			}
			lines := p.written(t)
			if missing, _ := lines.missing(p); len(missing) == 0 || len(missing) == p.records+p.early {
				t.Fatalf("the job was stopped when %d of its numbers were missing", len(missing))
			}
			if err := lines.once(); err != nil {
				t.Error(err)
			}
			if !drained && len(lines.timers) > 0 {
				t.Errorf("timers of %d keys have fired", len(lines.timers))
			}
			if err := lines.fired(); drained && err != nil {
				t.Error(err)
			}
			before, err := flightstruth.Committed(p.output)
			must(c, before, err)
			resumed := c.submit(append([]string{"--parallelism", "3", "--from-savepoint", path}, p.args()...)...)
			c.awaitStatus(resumed, cliresult.Finished)
			if !drained {
				p.check(t)
				return
			}
			after, err := flightstruth.Committed(p.output)
			if must(c, after, err).Lines() != before.Lines() || before.Unchanged(after) != nil {
				t.Errorf("%d lines have become %d after the restore of a drained job: %v", before.Lines(), after.Lines(), before.Unchanged(after))
			}
		})
	}
}
