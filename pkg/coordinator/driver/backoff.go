package driver

import (
	"context"
	"time"
)

// backoff paces the repeats of one operation on the store: an outage of
// milliseconds costs milliseconds, a long one no more than a call every
// pauseMax.
type backoff struct{ next time.Duration }

const (
	pauseFirst = 50 * time.Millisecond
	pauseMax   = 5 * time.Second
)

// wait pauses before the next repeat and reports whether ctx is still going.
func (b *backoff) wait(ctx context.Context) bool {
	pause := max(b.next, pauseFirst)
	b.next = min(2*pause, pauseMax)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
