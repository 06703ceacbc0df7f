package coordinator

import (
	"fmt"
	"time"
)

// One lost process is often heard of twice: a task whose connection broke may
// report before the TaskManager's own stream breaks, and then the next attempt
// may still be given slots of the dead one. Losses so soon after another, in
// an attempt that never ran, are the same incident: not counted, not waited for. The
// bound keeps executors that cannot be started at all from spinning.
const (
	incidentSpan      = time.Second
	incidentEchoesMax = 3
)

// restartPolicy remembers failures, to decide what follows the next one.
type restartPolicy struct {
	// Streaks since the job was last stable: they make delays grow.
	lostStreak, userStreak int
	// incident is when the last lost process was heard of first, echoes how
	// many losses since were taken for the same.
	incident time.Time
	echoes   int
	// userTotal counts restarts after user failures over the job's life here.
	userTotal int
	// sinceCheckpoint counts user failures since a checkpoint was published.
	sinceCheckpoint int
	// rootCause is the first failure since a checkpoint was published; a
	// failure of a kind that is more the job's own doing replaces it. A job
	// that gives up shows this one, not the last of its echoes.
	rootCause *Failure
}

// onCheckpoint: progress was made that no later failure undoes.
func (r *restartPolicy) onCheckpoint() {
	r.sinceCheckpoint = 0
	r.rootCause = nil
}

// onStable: the attempt that has failed now had run well for long.
func (r *restartPolicy) onStable() { r.lostStreak, r.userStreak = 0, 0 }

// onFailure takes a failure and returns the root cause.
func (r *restartPolicy) onFailure(f Failure) Failure {
	if r.rootCause == nil || f.Kind > r.rootCause.Kind {
		r.rootCause = &f
	}
	return *r.rootCause
}

// isEcho reports whether a failure belongs to an incident that was already
// counted, and notes it.
func (c *Coordinator) isEcho(now time.Time, f Failure) bool {
	r := &c.restarts
	hasRun := !c.attempt.runningSince.IsZero()
	if f.Kind != LostProcess || hasRun || r.lostStreak == 0 || now.Sub(r.incident) >= incidentSpan || r.echoes >= incidentEchoesMax {
		return false
	}
	r.echoes++
	return true
}

// decide says how long to wait before the next attempt, or why there is none.
func (c *Coordinator) decide(now time.Time, f Failure) (delay time.Duration, giveUp string) {
	r, cfg := &c.restarts, &c.cfg.Restart
	switch f.Kind {
	case PermanentFailure:
		return 0, "a restart cannot cure it"
	case LostProcess, CorruptCheckpoint: // what one host says of a checkpoint is of the host (fallback.go)
		r.incident, r.echoes = now, 0
		r.lostStreak++
		if r.lostStreak == 1 {
			return 0, ""
		}
		return c.backoff(cfg.Backoff, r.lostStreak-2), ""
	case UserFailure:
	}
	r.userStreak++
	r.userTotal++
	r.sinceCheckpoint++
	switch cfg.Strategy {
	case NoRestart:
		return 0, "the restart strategy is none"
	case FixedDelay:
		if r.userTotal > cfg.FixedAttempts {
			return 0, fmt.Sprintf("the restart strategy allows %d restarts", cfg.FixedAttempts)
		}
		return cfg.FixedDelay, ""
	case ExponentialDelay:
		if r.sinceCheckpoint > cfg.Attempts {
			return 0, fmt.Sprintf("%d restarts without a new completed checkpoint", cfg.Attempts)
		}
	}
	return c.backoff(cfg.Backoff, r.userStreak-1), ""
}
