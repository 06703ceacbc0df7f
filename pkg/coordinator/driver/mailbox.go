package driver

import (
	"context"
	"sync"

	"github.com/weirstream/weir/pkg/coordinator"
)

// reportsMax bounds the reports of executors that wait to be stepped. A round
// of acknowledgements of a job of 1,000 subtasks fits four times; beyond it
// the sessions wait, and with them only the executors' own report streams.
const reportsMax = 4096

// mailbox is the queue in front of the machine. Reports of executors wait for
// room. Everything else is an answer to one of the driver's own effects, a
// loss, or a user's request: bounded by what is under way, it never waits, so
// that no goroutine holding a lock can block on a driver.
type mailbox struct {
	mu struct {
		sync.Mutex
		events []coordinator.Event
		// room is closed when the queue was drained while somebody waited.
		room   chan struct{}
		closed bool
	}
	// ready has a token while there may be events.
	ready chan struct{}
}

func newMailbox() *mailbox {
	return &mailbox{ready: make(chan struct{}, 1)}
}

// put queues an event without waiting. After close it is dropped.
func (m *mailbox) put(event coordinator.Event) {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.events = append(m.mu.events, event)
	}
	m.mu.Unlock()
	m.signal()
}

// report queues an event when there is room for it; the error is ctx's. After
// close it is dropped.
func (m *mailbox) report(ctx context.Context, event coordinator.Event) error {
	for {
		m.mu.Lock()
		if m.mu.closed {
			m.mu.Unlock()
			return nil
		}
		if len(m.mu.events) < reportsMax {
			m.mu.events = append(m.mu.events, event)
			m.mu.Unlock()
			m.signal()
			return nil
		}
		if m.mu.room == nil {
			m.mu.room = make(chan struct{})
		}
		room := m.mu.room
		m.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take empties the queue.
func (m *mailbox) take() []coordinator.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.mu.events
	m.mu.events = nil
	m.freeLocked()
	return events
}

// close drops what is queued and all that comes.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	m.mu.events = nil
	m.freeLocked()
}

func (m *mailbox) freeLocked() {
	if m.mu.room != nil {
		close(m.mu.room)
		m.mu.room = nil
	}
}

func (m *mailbox) signal() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}
