package sim

import (
	"cmp"
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
	// Second is a job that runs beside it, on the same slots; nil for none.
	Second *simjob.Options
	// Rescales are what users do, one after the other: each ends the job and
	// starts it again with other parallelisms.
	Rescales []Rescale
	// TaskManagers have Slots each.
	TaskManagers, Slots int

	CreditBytes    int64
	InlineBytesMax int
	// LoopBytesMax is what the head of a loop keeps in memory; 0 for so much that
	// all is.
	LoopBytesMax int64
	// StepBudget is what Subtask.Step is given; InterruptOdds the probability
	// per record that mail waits.
	StepBudget    int
	InterruptOdds float64
	// SlowMax is the longest that subtasks of one vertex, in the place of
	// SlowVertex, wait for the processor; 0 for no longer than others.
	SlowMax    time.Duration
	SlowVertex int
	// FetchMax is the longest that a source waits for its next batch.
	FetchMax time.Duration
	// LinkMax, SessionMax and StoreMax are the longest usual delays.
	LinkMax, SessionMax, StoreMax time.Duration

	Interval, Timeout, MinPause time.Duration
	// AlignedTimeout is that of jobs in the mode of this name.
	AlignedTimeout          time.Duration
	Retained, MaxConcurrent int
	TolerableFailures       int
	Retention               coordinator.Retention

	// Safety is how long anything may fail; FaultMean the mean time between faults.
	Safety, FaultMean time.Duration
	// Weights of the faults that the injector chooses from, by FaultKind; 0 never.
	Weights [faultKinds]int
	// Odds of what happens to a call of the store, a source or a sink, by FaultKind.
	Odds [faultKinds]float64
	// HeartbeatTimeout is how long a lost connection goes unnoticed at most.
	HeartbeatTimeout time.Duration

	// Savepoints is how many savepoints are asked for; Cancel says that the user
	// ends the job in the middle for good.
	Savepoints int
	Cancel     bool

	// InFiles: the keyed state is in files of GroupsPerFile key groups, of which
	// hosts keep LocalCopies. Incremental checkpoints store those that are new.
	InFiles, Incremental, LocalCopies bool
	GroupsPerFile                     int
}

// Rescale is a job ended by its user and started again from where it stood.
type Rescale struct {
	How RescaleKind
	// At is when, as a share of the time in which anything may fail.
	At float64
	// Drain brings event time to its end before a stop.
	Drain bool
	// Tries is how often the user asks before giving up.
	Tries int
	// Sources, Counts, Ruled and Sinks are the new parallelisms.
	Sources, Counts, Ruled, Sinks int
	// Flow is the graph with new parallelisms, if the job is one.
	Flow *simjob.Flow
	// Claim makes what the job starts from its own.
	Claim bool
	// OtherBackend: the keyed state goes from files to the heap, or back.
	OtherBackend bool
	// WrongMax: the job is first submitted with another max parallelism, which
	// is refused.
	WrongMax bool
}

// RescaleKind is how a job is ended that is to go on.
type RescaleKind int

// The kinds.
const (
	// StopWithSavepoint stops the job with a savepoint.
	StopWithSavepoint RescaleKind = iota
	// CancelAndResume cancels it and goes on from the retained checkpoint.
	CancelAndResume
	// SavepointAndCancel takes a savepoint, cancels some time later and goes
	// back to the savepoint.
	SavepointAndCancel

	rescaleKinds
)

// String names the kind.
func (k RescaleKind) String() string {
	switch k {
	case StopWithSavepoint:
		return "stop"
	case CancelAndResume:
		return "cancel"
	case SavepointAndCancel:
		return "savepoint"
	case rescaleKinds:
	}
	return fmt.Sprintf("RescaleKind(%d)", int(k))
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
		Job:          drawJob(r),
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
	need, beside := o.Job.Widest(), 0
	if r.IntN(5) == 0 {
		second := drawJob(r)
		o.Second = &second
		beside = second.Widest()
		if r.IntN(3) == 0 {
			need, beside = max(need, beside), 0 // they may have to take turns
		}
	}
	if r.IntN(20) == 0 {
		o.Job.RecordsPerSplit = uint64(between(0, 3))
	}
	if r.IntN(15) == 0 {
		o.Interval = time.Hour // the final checkpoint is the only one
	}
	// Without faults the input lasts about as long as there are faults.
	fetches := o.Job.Fetches()
	if o.Second != nil {
		fetches = max(fetches, o.Second.Fetches())
	}
	o.FetchMax = min(2*millis(3_000, 16_000)/time.Duration(max(1, fetches)), 4*time.Second)
	if r.IntN(3) == 0 {
		o.MinPause = millis(1, 300)
	}
	if r.IntN(3) > 0 {
		for range between(1, 3) {
			x := Rescale{
				How: RescaleKind(r.IntN(int(rescaleKinds))), At: r.Float64(), Tries: []int{1, 100}[r.IntN(2)],
				Sources: between(1, 4), Counts: between(1, 4), Ruled: between(1, 4), Sinks: between(1, 4),
				Claim: r.IntN(2) == 0, WrongMax: r.IntN(4) == 0, Drain: r.IntN(4) == 0,
			}
			if x.How == SavepointAndCancel && o.Job.Mode == simjob.AtLeastOnce {
				// Which of two equal records is in front of a savepoint nobody can tell.
				x.How = StopWithSavepoint
			}
			if x.How == CancelAndResume {
				o.Retention = coordinator.RetainOnCancellation
			}
			if o.Job.Flow != nil {
				x.Flow = o.Job.Flow.Rescaled(r, 4)
				need = max(need, x.Flow.Widest())
			}
			need = max(need, x.Sources, x.Counts, x.Ruled, x.Sinks)
			o.Rescales = append(o.Rescales, x)
		}
		slices.SortFunc(o.Rescales, func(a, b Rescale) int { return cmp.Compare(a.At, b.At) })
	}
	for o.TaskManagers*o.Slots < need+beside {
		o.TaskManagers++
	}
	for kind := range faultKinds {
		if kind == CorruptFile || r.IntN(4) == 0 {
			continue // this seed does without
		}
		if odds := oddsMax[kind]; odds > 0 {
			o.Odds[kind] = odds * r.Float64()
		}
		if isInjected[kind] {
			o.Weights[kind] = between(1, 5)
		}
	}
	o.AlignedTimeout = millis(1, 60)
	if o.Job.Flow != nil {
		// A long graph of slow links may need that to align, and a job of which each
		// checkpoint is too late gets nowhere, as it should.
		o.Timeout *= 2
	}
	if r.IntN(3) > 0 {
		o.SlowMax, o.SlowVertex = millis(5, 60), r.IntN(8)
		o.CreditBytes += int64(between(0, 600))
	}
	o.Cancel = r.IntN(6) == 0
	o.Job.Revocable = r.IntN(4) > 0
	if o.Second != nil {
		o.Second.Revocable = r.IntN(4) > 0
	}
	if r.IntN(3) == 0 && o.Job.Mode != simjob.AtLeastOnce {
		// It ends many a run, so it comes in few and seldom.
		o.Weights[CorruptFile] = between(2, 8)
	}
	if r.IntN(5) < 2 {
		o.InFiles, o.Incremental, o.LocalCopies = true, r.IntN(6) > 0, r.IntN(2) == 0
		o.GroupsPerFile = between(1, 8)
		for i := range o.Rescales {
			o.Rescales[i].OtherBackend = r.IntN(4) == 0
		}
	}
	if r.IntN(2) == 0 && (o.Job.HasLoop() || o.Second != nil && o.Second.HasLoop()) {
		o.LoopBytesMax = int64(between(1, 300))
	}
	return o
}

// drawJob draws one of the kinds of job.
func drawJob(r *rand.Rand) simjob.Options {
	between := func(low, high int) int { return low + r.IntN(high-low+1) }
	j := simjob.Options{
		Splits: between(1, 6), RecordsPerSplit: uint64(between(40, 400)), Keys: uint64(between(1, 40)),
		BatchMax:          uint64(between(1, 12)),
		SourceParallelism: between(1, 4), CountParallelism: between(1, 4), SinkParallelism: between(1, 4),
		MaxParallelism: between(4, 32),
	}
	switch r.IntN(5) {
	case 0:
	case 1, 2:
		j.Flow = simjob.DrawFlow(r)
		j.Idleness = []time.Duration{0, 0, time.Duration(between(100, 900)) * time.Millisecond}[r.IntN(3)]
	default:
		j.Stateful = true
		j.RecordsPerSplit = uint64(between(20, 160))
		j.RuleSplits, j.RulesPerSplit, j.RuledParallelism = between(1, 2), uint64(between(5, 30)), between(1, 4)
		j.Idleness = []time.Duration{0, 0, time.Duration(between(100, 900)) * time.Millisecond}[r.IntN(3)]
		j.TTL, j.OnRead = time.Duration(between(100, 3000))*time.Millisecond, r.IntN(2) == 0
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		j.Mode = simjob.Unaligned
	case 3, 4:
		j.Mode = simjob.AlignedTimeout
	case 5, 6:
		if j.Flow != nil {
			j.Mode = simjob.AtLeastOnce
		}
	}
	return j
}

// String prints the options in a few lines.
func (o Options) String() string {
	var b strings.Builder
	b.WriteString(o.Job.String())
	if o.Second != nil {
		fmt.Fprintf(&b, "beside it:\n%s", *o.Second)
	}
	for _, x := range o.Rescales {
		fmt.Fprintf(&b, "rescale at %.2f by %s (%d tries, drain %t) to %d, %d, %d, %d, claim %t, other backend %t, wrong max parallelism first %t\n",
			x.At, x.How, x.Tries, x.Drain, x.Sources, x.Counts, x.Ruled, x.Sinks, x.Claim, x.OtherBackend, x.WrongMax)
		if x.Flow != nil {
			b.WriteString(x.Flow.String())
		}
	}
	fmt.Fprintf(&b, "cluster: %d TaskManagers with %d slots; credit %d, inline %d, loops %d, step budget %d, interrupts %g, slow vertex %d by %s, heartbeat timeout %s\n",
		o.TaskManagers, o.Slots, o.CreditBytes, o.InlineBytesMax, o.LoopBytesMax, o.StepBudget, o.InterruptOdds, o.SlowVertex, o.SlowMax, o.HeartbeatTimeout)
	fmt.Fprintf(&b, "times: fetch %s, link %s, session %s, store %s\n", o.FetchMax, o.LinkMax, o.SessionMax, o.StoreMax)
	fmt.Fprintf(&b, "checkpoints: every %s, timeout %s, aligned for %s, pause %s, %d at once, retained %d, retention %d, tolerable failures %d\n",
		o.Interval, o.Timeout, o.AlignedTimeout, o.MinPause, o.MaxConcurrent, o.Retained, o.Retention, o.TolerableFailures)
	if o.InFiles {
		fmt.Fprintf(&b, "state in files of %d key groups, incremental %t, local copies %t\n", o.GroupsPerFile, o.Incremental, o.LocalCopies)
	}
	fmt.Fprintf(&b, "user: %d savepoints, cancel %t\n", o.Savepoints, o.Cancel)
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
