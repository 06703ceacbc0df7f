package jobmanager

import (
	"sync"
	"time"
)

// watchdog notices that a peer has been silent for too long. It watches only
// while the server listens: the time that the server itself takes over a
// message is no silence of the peer.
type watchdog struct {
	timeout time.Duration
	mu      struct {
		sync.Mutex
		timer *time.Timer
		over  bool
	}
	running sync.WaitGroup
}

// watch starts a watchdog that calls bark once when nothing was heard for the
// timeout.
func watch(timeout time.Duration, bark func()) *watchdog {
	w := &watchdog{timeout: timeout}
	w.mu.timer = time.AfterFunc(timeout, func() {
		w.mu.Lock()
		over := w.mu.over
		w.mu.over = true
		if !over {
			w.running.Add(1)
		}
		w.mu.Unlock()
		if !over {
			defer w.running.Done()
			bark()
		}
	})
	return w
}

// heard: a message arrived, which the server now works on.
func (w *watchdog) heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.timer.Stop()
}

// listen: the server waits for the next message.
func (w *watchdog) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.over {
		w.mu.timer.Reset(w.timeout)
	}
}

// stop ends the watch and waits for a bark under way.
func (w *watchdog) stop() {
	w.mu.Lock()
	w.mu.over = true
	w.mu.timer.Stop()
	w.mu.Unlock()
	w.running.Wait()
}
