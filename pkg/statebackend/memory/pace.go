package memory

import "time"

// pace has whoever writes a snapshot rest for as long as it works. At full
// speed it takes a third of the throughput from the subtask, whose changes copy
// every page at the same time, or the whole processor where there are no more
// of those than subtasks. Storage is rarely as fast as half the speed; while a
// write waits for it nothing is taken from anybody, so no rest is long.
type pace struct {
	since   time.Time // of the present stretch of work
	entries int       // until the clock is looked at
}

const (
	// paceEntries take some 100 us, so that the clock costs nothing.
	paceEntries = 1024
	// paceStretch is long enough for a rest to be about as long as asked for,
	// and short against what anybody notices.
	paceStretch = 2 * time.Millisecond
	// restMax bounds the rest after a stretch in which a write had to wait.
	restMax = 5 * paceStretch
)

// did notes that n entries were worked on.
func (p *pace) did(n int) {
	if p.entries -= n; p.entries > 0 {
		return
	}
	p.entries = paceEntries
	now := time.Now()
	worked := now.Sub(p.since)
	switch {
	case p.since.IsZero():
		p.since = now
	case worked >= paceStretch:
		<-time.After(min(worked, restMax))
		p.since = time.Now()
	}
}
