package coordinator

import "time"

// timerKind names what a deadline is for. Timers that are due at once fire in this order.
type timerKind uint8

const (
	timerClaim   timerKind = iota // the next try to claim the job
	timerLoad                     // the next try to load the restore point
	timerRestart                  // the end of the restart delay
	timerSlots                    // slot.request.timeout
	timerLaunch                   // executors must be ready
	timerFinal                    // the next try of a final checkpoint
	timerCancel                   // the grace of a cancel
	timerCount
)

// timers holds the deadlines that are not a checkpoint's.
type timers [timerCount]struct {
	at    time.Time
	armed bool
}

func (t *timers) set(k timerKind, at time.Time) { t[k].at, t[k].armed = at, true }

func (t *timers) clear(k timerKind) { t[k].armed = false }

func (t *timers) isSet(k timerKind) bool { return t[k].armed }

// fire disarms a timer that is due, and reports whether it was.
func (t *timers) fire(k timerKind, now time.Time) bool {
	if !t[k].armed || now.Before(t[k].at) {
		return false
	}
	t[k].armed = false
	return true
}

func (t *timers) next() (at time.Time, armed bool) {
	for _, timer := range t {
		if timer.armed && (!armed || timer.at.Before(at)) {
			at, armed = timer.at, true
		}
	}
	return at, armed
}
