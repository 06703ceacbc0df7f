package task

import (
	"sync"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// arrivals is what reached a task, in order of arrival for each of the three.
type arrivals struct {
	frames  []arrivedFrame
	credits []arrivedCredit
	mail    []func()
}

type arrivedFrame struct {
	in    int
	frame element.Frame
}

type arrivedCredit struct {
	out   subtask.Output
	bytes int64
}

// reset empties the arrivals and keeps their memory.
func (a *arrivals) reset() {
	clear(a.frames)
	clear(a.mail)
	a.frames, a.credits, a.mail = a.frames[:0], a.credits[:0], a.mail[:0]
}

// inbox collects arrivals. Its bound is the credit granted, see the package comment.
type inbox struct {
	// wake has capacity one: a token says that something may have arrived.
	wake chan struct{}
	mu   struct {
		sync.Mutex
		arrivals
		// pace, once the subtask exists, is told about mail, so that a long
		// batch is interrupted for it. Frames and credits wait for the end of
		// the step, which is bounded.
		pace *operator.Pace
		// closed: the task has ended; what still comes is freed.
		closed bool
	}
}

func (b *inbox) wakeUp() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) pushFrame(in int, f element.Frame) {
	b.mu.Lock()
	if b.mu.closed {
		b.mu.Unlock()
		f.Free()
		return
	}
	b.mu.frames = append(b.mu.frames, arrivedFrame{in, f})
	first := len(b.mu.frames) == 1
	if f.Kind == element.BarrierKind && f.Barrier.Alignment == element.Unaligned && b.mu.pace != nil {
		b.mu.pace.MailWaits() // it overtakes what the subtask is busy with
	}
	b.mu.Unlock()
	if first {
		b.wakeUp()
	}
}

func (b *inbox) pushCredit(out subtask.Output, bytes int64) {
	b.mu.Lock()
	if !b.mu.closed {
		b.mu.credits = append(b.mu.credits, arrivedCredit{out, bytes})
	}
	first := len(b.mu.credits) == 1
	b.mu.Unlock()
	if first {
		b.wakeUp()
	}
}

// pushMail leaves something to be done on the task's goroutine. It is dropped
// when the task has ended.
func (b *inbox) pushMail(do func()) {
	b.mu.Lock()
	if b.mu.closed {
		b.mu.Unlock()
		return
	}
	b.mu.mail = append(b.mu.mail, do)
	if b.mu.pace != nil {
		b.mu.pace.MailWaits()
	}
	b.mu.Unlock()
	b.wakeUp()
}

// setPace tells whom to interrupt for mail from now on.
func (b *inbox) setPace(p *operator.Pace) {
	b.mu.Lock()
	b.mu.pace = p
	if len(b.mu.mail) > 0 {
		p.MailWaits()
	}
	b.mu.Unlock()
}

// take swaps what has arrived for empty, whose memory is reused, and ends the
// interruption for what is in it.
func (b *inbox) take(empty arrivals) arrivals {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.mu.arrivals
	b.mu.arrivals = empty
	if b.mu.pace != nil {
		b.mu.pace.MailRead() // whatever it was: a barrier that overtakes is no mail
	}
	return taken
}

// close drops what has arrived and what still comes.
func (b *inbox) close() {
	b.mu.Lock()
	b.mu.closed = true
	rest := b.mu.arrivals
	b.mu.arrivals = arrivals{}
	b.mu.Unlock()
	for i := range rest.frames {
		rest.frames[i].frame.Free()
	}
}
