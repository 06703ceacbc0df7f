package operator

import "sync/atomic"

// Pace tells the loops of one subtask to yield between two records: when an
// output has run out of credit, and when mail waits.
type Pace struct {
	// blocked is set by the subtask's own goroutine.
	blocked bool
	// mail is set by any goroutine that leaves mail.
	mail atomic.Bool
}

// ShouldYield reports whether the loop must return before the next record.
func (p *Pace) ShouldYield() bool { return p.blocked || p.mail.Load() }

// SetBlocked says whether an output is out of credit. Only the subtask's
// goroutine may call it.
func (p *Pace) SetBlocked(b bool) { p.blocked = b }

// Blocked reports what SetBlocked said.
func (p *Pace) Blocked() bool { return p.blocked }

// MailWaits asks for a yield; any goroutine may call it.
func (p *Pace) MailWaits() { p.mail.Store(true) }

// MailRead ends what MailWaits began.
func (p *Pace) MailRead() { p.mail.Store(false) }
