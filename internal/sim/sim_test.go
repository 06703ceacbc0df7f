package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
)

var (
	seedFlag  = flag.Uint64("sim.seed", 0, "run this one seed")
	seedsFlag = flag.Int("sim.seeds", 1000, "how many seeds to run at least")
	forFlag   = flag.Duration("sim.for", 0, "go on with further seeds until so much time is over")
	baseFlag  = flag.Uint64("sim.base", 1, "the first seed")
	traceFlag = flag.Bool("sim.trace", false, "print every line of the trace")
	plantFlag = flag.String("sim.plant", "", "plant this bug")
	listFlag  = flag.Bool("sim.plants", false, "print the plants")
)

// TestMain lets the heap grow: runs are short and make much garbage, and
// collecting it took a third of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	// The disks of a run are small and end with it. On a real one they took a
	// third of the time.
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestSim runs seeds, each twice. With -sim.seed it runs that one.
func TestSim(t *testing.T) {
	if *seedFlag != 0 {
		replay(t, *seedFlag)
		return
	}
	plant := plantNamed(t, *plantFlag)
	began := time.Now()
	sum := summary{told: began}
	t.Run("seeds", func(t *testing.T) {
		var next atomic.Uint64
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1) - 1
					if n >= uint64(*seedsFlag) && time.Since(began) >= *forFlag {
						return
					}
					if failures := sum.add(runTwice(t, *baseFlag+n, plant)); failures >= failuresMax {
						t.FailNow()
					}
					if done, due := sum.progress(time.Now()); due {
						t.Logf("%d seeds in %s", done, time.Since(began).Round(time.Second))
					}
				}
			})
		}
	})
	// Once more, and last: a log of which only the end was kept says what failed.
	defer func() {
		for _, failed := range sum.failures {
			t.Log(failed)
		}
	}()
	if len(sum.restores) == 0 {
		return // all have failed
	}
	total, restores, completed := sum.total, sum.restores, sum.completed
	slices.Sort(restores)
	slices.Sort(completed)
	median := len(restores) / 2
	t.Logf("%d seeds from %d in %s: %s\nthe median seed has %d completed checkpoints and %d restores",
		len(restores), *baseFlag, time.Since(began).Round(time.Second), total.totals(), completed[median], restores[median])
	if len(restores) < 100 {
		return // too few for all kinds of fault to come
	}
	for kind := range faultKinds {
		if total.Faults[kind] == 0 {
			t.Errorf("no seed made a fault of the kind %s", kind)
		}
	}
	if restores[median] < 1 || completed[median] < completedMin {
		t.Errorf("the median seed has %d restores and %d completed checkpoints, want at least 1 and %d", restores[median], completed[median], completedMin)
	}
	for kind := range rescaleKinds {
		if total.Rescales[kind] == 0 {
			t.Errorf("no seed had a rescale by %s", kind)
		}
	}
	if len(restores) < rareSeeds {
		return
	}
	for mode, n := range total.Modes {
		if n == 0 {
			t.Errorf("no seed had a job in mode %s", simjob.Mode(mode))
		}
	}
	for what, n := range map[string]int{
		"savepoint": total.Savepoints, "cancel": total.Cancels, "fenced leader": total.Fenced, "claim": total.Claims,
		"refused max parallelism": total.Refused, "event-time timer": total.EventTimers, "processing-time timer": total.ProcessingTimers,
		"value that expired": total.Expired, "value that did not": total.Alive, "idle source": total.Idle,
		"shared file uploaded": total.SharedUploaded, "shared file reused": total.SharedReused, "shared file deleted": total.SharedDeleted,
		"restore from files": total.FromFiles, "file that was read locally": total.LocalFiles, "job that went on with another backend": total.OtherBackend,
		"stopped job without end": total.Stops, "run of two jobs": total.Beside,
		"output record that came again in at-least-once mode": total.Duplicates, "alignment that timed out": total.TimedOut,
		"record in flight in a checkpoint": total.InFlight, "restored record in flight": total.RestoredInFlight,
		"record in flight given away by key": total.Rekeyed, "drained stop": total.Drains, "record logged by a loop": total.LoopLogged, "byte that a loop put on disk": int(total.LoopSpilled), "loop that ended": total.LoopsEnded,
		"fallback": total.Fallbacks, "transaction taken back": total.Revoked, "job that failed for a corrupt checkpoint": total.FailedCorrupt,
	} {
		if n == 0 {
			t.Errorf("no seed had a %s", what)
		}
	}
}

// summary is what many runs were.
type summary struct {
	mu                  sync.Mutex
	total               Result
	restores, completed []int
	failures            []string  // one line each, at most failuresMax and one for each further worker
	told                time.Time // when progress was last due
}

// progressEvery is often enough to see with -v that a long run goes on.
const progressEvery = time.Minute

// progress gives how many runs have ended, and whether it is time to say so.
func (s *summary) progress(now time.Time) (done int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if due = now.Sub(s.told) >= progressEvery; due {
		s.told = now
	}
	return len(s.restores) + len(s.failures), due
}

// add adds a run, and gives how many have failed.
func (s *summary) add(r Result) (failures int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Failure != nil {
		s.failures = append(s.failures, fmt.Sprintf("FAILED seed %d: %v; replay: %s", r.Seed, r.Failure, replayCommand(r.Seed)))
		return len(s.failures)
	}
	s.total.add(r)
	s.restores, s.completed = append(s.restores, r.Restores), append(s.completed, r.Completed)
	return len(s.failures)
}

// runTwice runs a seed and requires that it can be replayed.
func runTwice(t *testing.T, seed uint64, plant Plant) Result {
	r := Run(Config{Seed: seed, Plant: plant})
	if r.Failure != nil {
		t.Error(describe(r))
		return r
	}
	if again := Run(Config{Seed: seed, Plant: plant}); again.Hash != r.Hash {
		t.Fatalf("seed %d is not deterministic: trace hashes %016x and %016x", seed, r.Hash, again.Hash)
	}
	return r
}

// rareSeeds is from how many seeds on everything is demanded that may happen: the
// rarest comes in a few of a thousand.
const rareSeeds = 1000

// failuresMax is how many failed seeds are printed: the first is often not the
// simplest.
const failuresMax = 3

// completedMin is how many checkpoints the median seed must complete.
const completedMin = 5

func replay(t *testing.T, seed uint64) {
	config := Config{Seed: seed, Plant: plantNamed(t, *plantFlag)}
	if *traceFlag {
		config.Trace = os.Stdout
	}
	r := Run(config)
	t.Logf("seed %d, hash %016x\n%s\n%s", seed, r.Hash, r.Options, r.totals())
	if r.Failure != nil {
		t.Fatal(describe(r))
	}
}

func plantNamed(t *testing.T, name string) Plant {
	t.Helper()
	if name == "" {
		return NoPlant
	}
	for _, p := range Plants() {
		if p.String() == name {
			return p
		}
	}
	t.Fatalf("there is no plant %q, only %v", name, Plants())
	return NoPlant
}

// describe prints a failed run with what is needed to look into it.
func describe(r Result) string {
	return fmt.Sprintf("seed %d: %v\n\noptions:\n%s\n\nthe last lines:\n%s\n\nreplay:\n  %s\n",
		r.Seed, r.Failure, r.Options, strings.Join(r.Failure.Trace, "\n"), replayCommand(r.Seed))
}

// replayCommand is what runs a failed seed again, with its whole trace.
func replayCommand(seed uint64) string {
	command := fmt.Sprintf("go test ./internal/sim -run TestSim -sim.seed=%d -sim.trace", seed)
	if *plantFlag != "" {
		command += " -sim.plant=" + *plantFlag
	}
	return command
}

// plantSeedsMax is how many seeds a plant may stay hidden for.
const plantSeedsMax = 100

// TestPlantsAreDescribed prints the plants with -sim.plants. Each has a name of
// its own and says what it does.
func TestPlantsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Plants() {
		if p.String() == "" || p.Text() == "" || seen[p.String()] {
			t.Errorf("plant %d has the name %q and the text %q: give it both, and no other's name", p, p, p.Text())
		}
		seen[p.String()] = true
		if *listFlag {
			fmt.Printf("%-32s %s\n", p, p.Text())
		}
	}
	if len(seen) < plantsMin {
		t.Errorf("there are %d plants, want %d", len(seen), plantsMin)
	}
}

// plantsMin is how many plants there are at least.
const plantsMin = 30

// TestPlantsAreFound plants each bug and requires that a checker notices.
func TestPlantsAreFound(t *testing.T) {
	for _, plant := range Plants() {
		t.Run(plant.String(), func(t *testing.T) {
			t.Parallel()
			tried := 0
			for seed := *baseFlag; tried < plantSeedsMax; seed++ {
				if !plant.mayStrike(Draw(seed)) {
					continue
				}
				tried++
				if r := Run(Config{Seed: seed, Plant: plant}); r.Failure != nil {
					t.Logf("found after %d seeds: %v", tried, r.Failure)
					return
				}
			}
			t.Fatalf("not found within %d seeds", plantSeedsMax)
		})
	}
}
