package executor

import (
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// valid makes text fit into a message: user code may put any bytes into an error.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// unackedMax bounds the reports that the JobManager has not acknowledged. Each
// heartbeat acknowledges all before it, so that there are only those of about
// one interval; so many mean that it does not answer, and the executor is
// about to end for that.
const unackedMax = 1 << 16

// reports sends to the JobManager and remembers what it may not have. Methods
// may be called by any goroutine.
type reports struct {
	mu struct {
		sync.Mutex
		session transport.ExecutorUplink // nil while there is none
		// unacked are the reports behind the last acknowledged heartbeat, and
		// first the number of the first of them since the start.
		unacked []*pb.ExecutorReport
		first   uint64
		// heartbeats that are not acknowledged, oldest first. There are as
		// many as fit into the time after which the executor gives up.
		heartbeats []sentHeartbeat
		sequence   uint64
		dropped    bool
	}
}

type sentHeartbeat struct {
	sequence uint64
	at       time.Time
	behind   uint64 // reports with smaller numbers were sent before
}

// send sends a report now, or when there is a session.
func (r *reports) send(m *pb.ExecutorReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.unacked) >= unackedMax {
		r.mu.dropped = true
		return
	}
	r.mu.unacked = append(r.mu.unacked, m)
	if r.mu.session != nil {
		// An error is the end of the session, which whoever receives sees
		// too; the report is still here then.
		_ = r.mu.session.Send(m)
	}
}

// attach begins to send on a session, with what may not have arrived.
func (r *reports) attach(s transport.ExecutorUplink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.session = s
	r.mu.heartbeats = nil // of the old session: their answers will not come
	for _, m := range r.mu.unacked {
		_ = s.Send(m) // as in send
	}
}

// detach ends sending; what is reported from now on waits.
func (r *reports) detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.session = nil
}

// heartbeat sends one.
func (r *reports) heartbeat(metrics []*pb.SubtaskMetrics) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.session == nil {
		return
	}
	r.mu.sequence++
	r.mu.heartbeats = append(r.mu.heartbeats, sentHeartbeat{
		sequence: r.mu.sequence, at: time.Now(), behind: r.mu.first + uint64(len(r.mu.unacked)),
	})
	_ = r.mu.session.Send(&pb.ExecutorReport{Kind: &pb.ExecutorReport_Heartbeat{
		Heartbeat: &pb.ExecutorHeartbeat{Sequence: r.mu.sequence, Metrics: metrics},
	}}) // as in send
}

// acked takes the answer to a heartbeat and returns when that was sent.
func (r *reports) acked(sequence uint64) (sent time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.mu.heartbeats) > 0 && r.mu.heartbeats[0].sequence <= sequence {
		h := r.mu.heartbeats[0]
		r.mu.heartbeats = r.mu.heartbeats[1:]
		if n := h.behind - r.mu.first; n > 0 {
			clear(r.mu.unacked[:n])
			r.mu.unacked = r.mu.unacked[n:]
			r.mu.first = h.behind
		}
		sent, ok = h.at, true
	}
	return sent, ok
}

// hasDropped reports whether a report was lost because nothing was
// acknowledged for too long.
func (r *reports) hasDropped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.dropped
}
