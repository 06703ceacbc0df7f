package sim

import "time"

// session is the stream between a client (TaskManager or executor) and a
// JobManager: in order in each direction, until it breaks.
type session struct {
	c        *cluster
	client   *process
	jm       *jobManager
	up, down inTurn
	broken   bool
	// lossy: what was under way when it broke does not arrive.
	lossy bool
	// clientLost and jmLost tell the ends that it broke.
	clientLost, jmLost func()
}

func (c *cluster) newSession(client *process, jm *jobManager) *session {
	return &session{c: c, client: client, jm: jm}
}

// toJobManager sends a message up.
func (s *session) toJobManager(label string, f func()) { s.send(&s.up, &s.jm.process, label, f) }

// toClient sends a message down.
func (s *session) toClient(label string, f func()) { s.send(&s.down, s.client, label, f) }

func (s *session) send(direction *inTurn, to *process, label string, f func()) {
	if s.broken {
		return
	}
	at := direction.next(s.c.now + s.c.between(0, s.c.options.SessionMax))
	s.c.at(at, label, func() {
		if !s.broken || !s.lossy {
			to.do(f)
		}
	})
}

// breakAfter breaks the session; each end that lives notices within that time.
func (s *session) breakAfter(notice time.Duration) {
	if s.broken {
		return
	}
	s.broken = true
	s.lossy = s.c.chance(0.5)
	notify := func(direction *inTurn, to *process, lost func()) {
		if lost != nil {
			s.c.at(direction.next(s.c.now+s.c.between(0, notice)), "session lost", func() { to.do(lost) })
		}
	}
	notify(&s.up, &s.jm.process, s.jmLost)
	notify(&s.down, s.client, s.clientLost)
}

// exitNotice is how long it takes to notice that the process at the other end
// has died: its host says so.
const exitNotice = 20 * time.Millisecond
