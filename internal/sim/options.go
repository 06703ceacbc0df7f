package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
)

// Options are everything about a run that is drawn from its seed: a swarm, so
// that each seed leaves out some faults and overdoes others.
type Options struct {
	Job simjob.Options
	// Next are the parallelisms of the job that goes on from a savepoint.
	Next [3]int
	// TaskManagers have Slots each.
	TaskManagers, Slots int

	CreditBytes    int64
	InlineBytesMax int
	// StepBudget is what Subtask.Step is given; InterruptOdds the probability
	// per record that mail waits.
	StepBudget    int
	InterruptOdds float64
	// FetchMax is the longest that a source waits for its next batch.
	FetchMax time.Duration
	// LinkMax, SessionMax and StoreMax are the longest usual delays.
	LinkMax, SessionMax, StoreMax time.Duration

	Interval, Timeout, MinPause time.Duration
	Retained, MaxConcurrent     int
	TolerableFailures           int
	Retention                   coordinator.Retention

	// Safety is how long anything may fail; FaultMean the mean time between faults.
	Safety, FaultMean time.Duration
	// Weights of the faults that the injector chooses from, by FaultKind; 0 never.
	Weights [faultKinds]int
	// Odds of what happens to a call of the store, a source or a sink, by FaultKind.
	Odds [faultKinds]float64
	// HeartbeatTimeout is how long a lost connection goes unnoticed at most.
	HeartbeatTimeout time.Duration

	// Savepoints is how many savepoints are asked for; Stop and Cancel how the
	// user ends the job in the middle, if at all.
	Savepoints   int
	Stop, Cancel bool
	// StopTries is how often a user asks for the stop before giving up.
	StopTries int
}

// optionsStream separates the draws of the options from those of the run, so
// that a new option does not change what else a seed does more than needed.
const optionsStream, runStream = 1, 2

// Draw gives the options of a seed.
func Draw(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, optionsStream))
	between := func(low, high int) int { return low + r.IntN(high-low+1) }
	millis := func(low, high int) time.Duration { return time.Duration(between(low, high)) * time.Millisecond }
	o := Options{
		Job: simjob.Options{
			Splits: between(1, 6), RecordsPerSplit: uint64(between(40, 400)), Keys: uint64(between(1, 40)),
			BatchMax:          uint64(between(1, 12)),
			SourceParallelism: between(1, 4), CountParallelism: between(1, 4), SinkParallelism: between(1, 4),
			MaxParallelism: between(4, 32),
		},
		Next:         [3]int{between(1, 4), between(1, 4), between(1, 4)},
		TaskManagers: between(1, 4), Slots: between(1, 3),
		CreditBytes: int64(between(1, 120)), InlineBytesMax: []int{0, 0, 64, 4096}[r.IntN(4)],
		StepBudget: between(1, 8), InterruptOdds: []float64{0, 0.02, 0.3}[r.IntN(3)],
		LinkMax: millis(1, 20), SessionMax: millis(1, 30), StoreMax: millis(2, 60),
		Interval: millis(150, 700), Timeout: millis(1500, 5000),
		Retained: between(1, 3), MaxConcurrent: max(1, between(-1, 3)), TolerableFailures: between(0, 3) - 1,
		Retention: coordinator.Retention(between(1, 3)),
		Safety:    millis(8_000, 24_000), FaultMean: millis(700, 3_000), HeartbeatTimeout: millis(300, 1500),
		Savepoints: between(0, 2),
	}
	if r.IntN(20) == 0 {
		o.Job.RecordsPerSplit = uint64(between(0, 3))
	}
	if r.IntN(15) == 0 {
		o.Interval = time.Hour // the final checkpoint is the only one
	}
	// Without faults the input lasts about as long as there are faults.
	fetches := time.Duration((o.Job.Splits+o.Job.SourceParallelism-1)/o.Job.SourceParallelism) *
		time.Duration((o.Job.RecordsPerSplit+o.Job.BatchMax-1)/o.Job.BatchMax)
	o.FetchMax = min(2*millis(3_000, 16_000)/max(1, fetches), 4*time.Second)
	if r.IntN(3) == 0 {
		o.MinPause = millis(1, 300)
	}
	for need := max(o.Job.SourceParallelism, o.Job.CountParallelism, o.Job.SinkParallelism, slices.Max(o.Next[:])); o.TaskManagers*o.Slots < need; {
		o.TaskManagers++
	}
	for kind := range faultKinds {
		if r.IntN(4) == 0 {
			continue // this seed does without
		}
		if odds := oddsMax[kind]; odds > 0 {
			o.Odds[kind] = odds * r.Float64()
		}
		if isInjected[kind] {
			o.Weights[kind] = between(1, 5)
		}
	}
	switch r.IntN(6) {
	case 0, 1:
		o.Stop, o.StopTries = true, []int{1, 100}[r.IntN(2)]
	case 2:
		o.Cancel = true
	}
	return o
}

// String prints the options in a few lines.
func (o Options) String() string {
	var b strings.Builder
	j := o.Job
	fmt.Fprintf(&b, "job: %d splits of %d records, %d keys, batches of %d; parallelism %d, %d, %d of %d, then %v\n",
		j.Splits, j.RecordsPerSplit, j.Keys, j.BatchMax, j.SourceParallelism, j.CountParallelism, j.SinkParallelism, j.MaxParallelism, o.Next)
	fmt.Fprintf(&b, "cluster: %d TaskManagers with %d slots; credit %d, inline %d, step budget %d, interrupts %g, heartbeat timeout %s\n",
		o.TaskManagers, o.Slots, o.CreditBytes, o.InlineBytesMax, o.StepBudget, o.InterruptOdds, o.HeartbeatTimeout)
	fmt.Fprintf(&b, "times: fetch %s, link %s, session %s, store %s\n", o.FetchMax, o.LinkMax, o.SessionMax, o.StoreMax)
	fmt.Fprintf(&b, "checkpoints: every %s, timeout %s, pause %s, %d at once, retained %d, retention %d, tolerable failures %d\n",
		o.Interval, o.Timeout, o.MinPause, o.MaxConcurrent, o.Retained, o.Retention, o.TolerableFailures)
	fmt.Fprintf(&b, "user: %d savepoints, stop %t (%d tries), cancel %t\n", o.Savepoints, o.Stop, o.StopTries, o.Cancel)
	fmt.Fprintf(&b, "faults: for %s, every %s:", o.Safety, o.FaultMean)
	for kind := range faultKinds {
		switch {
		case o.Weights[kind] > 0:
			fmt.Fprintf(&b, " %s=%d", kind, o.Weights[kind])
		case o.Odds[kind] > 0:
			fmt.Fprintf(&b, " %s=%.3f", kind, o.Odds[kind])
		}
	}
	return b.String()
}
