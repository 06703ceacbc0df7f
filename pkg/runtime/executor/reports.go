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

// unackedMax bounds the reports that the JobManager has not acknowledged. The
// answer to a heartbeat acknowledges all that it has, so that there are only
// those of about one interval; so many mean that it does not answer, and the
// executor is about to end for that.
const unackedMax = 1 << 16

// reports sends to the JobManager and remembers what it may not have. Methods
// may be called by any goroutine.
type reports struct {
	mu struct {
		sync.Mutex
		session transport.ExecutorUplink // nil while there is none
		// unacked are the reports that the JobManager has not said to have,
		// first the number of the first of them since the start, and base that
		// of the first report of this session.
		unacked     []*pb.ExecutorReport
		first, base uint64
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
	r.mu.session, r.mu.base = s, r.mu.first
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

// heartbeat sends one. It may overtake reports, and says nothing of them.
func (r *reports) heartbeat(metrics []*pb.SubtaskMetrics) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.session == nil {
		return
	}
	r.mu.sequence++
	r.mu.heartbeats = append(r.mu.heartbeats, sentHeartbeat{sequence: r.mu.sequence, at: time.Now()})
	_ = r.mu.session.SendAhead(&pb.ExecutorReport{Kind: &pb.ExecutorReport_Heartbeat{
		Heartbeat: &pb.ExecutorHeartbeat{Sequence: r.mu.sequence, Metrics: metrics},
	}}) // as in send
}

// acked takes the answer to a heartbeat, which says how many reports of this
// session the JobManager has, and returns when the heartbeat was sent.
func (r *reports) acked(m *pb.Heartbeat) (sent time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.mu.base + m.GetReports(); have > r.mu.first {
		n := min(have-r.mu.first, uint64(len(r.mu.unacked)))
		clear(r.mu.unacked[:n])
		r.mu.unacked = r.mu.unacked[n:]
		r.mu.first += n
	}
	for len(r.mu.heartbeats) > 0 && r.mu.heartbeats[0].sequence <= m.GetSequence() {
		sent, ok = r.mu.heartbeats[0].at, true
		r.mu.heartbeats = r.mu.heartbeats[1:]
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
