package executor

import (
	"testing"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// uplink keeps what is sent.
type uplink struct {
	transport.ExecutorUplink
	reports    []uint64 // the checkpoints of those that are sent
	heartbeats []uint64 // their sequence numbers
}

func (u *uplink) Send(m *pb.ExecutorReport) error {
	u.reports = append(u.reports, m.GetCommitAcked().GetCheckpoint())
	return nil
}

func (u *uplink) SendAhead(m *pb.ExecutorReport) error {
	u.heartbeats = append(u.heartbeats, m.GetHeartbeat().GetSequence())
	return nil
}

func commitOf(checkpoint uint64) *pb.ExecutorReport {
	return &pb.ExecutorReport{Kind: &pb.ExecutorReport_CommitAcked{CommitAcked: &pb.CommitAcked{Checkpoint: checkpoint}}}
}

// TestReportsStayUntilTheJobManagerHasThem: a heartbeat that was answered may
// have overtaken reports, so only the number in the answer tells which came.
func TestReportsStayUntilTheJobManagerHasThem(t *testing.T) {
	r := &reports{}
	unacked := func() (left []uint64) {
		for _, m := range r.mu.unacked {
			left = append(left, m.GetCommitAcked().GetCheckpoint())
		}
		return left
	}
	want := func(what string, have []uint64, want ...uint64) {
		t.Helper()
		if len(have) != len(want) {
			t.Fatalf("%s: %v, want %v", what, have, want)
		}
		for i := range want {
			if have[i] != want[i] {
				t.Fatalf("%s: %v, want %v", what, have, want)
			}
		}
	}
	first := &uplink{}
	r.attach(first)
	for i := range uint64(4) {
		r.send(commitOf(i))
	}
	r.heartbeat(nil)
	if _, ok := r.acked(&pb.Heartbeat{Sequence: 1, Reports: 1}); !ok {
		t.Error("the answer to the heartbeat is not known")
	}
	want("after one was told to have come", unacked(), 1, 2, 3)
	r.acked(&pb.Heartbeat{Sequence: 1})
	want("after an answer that tells less", unacked(), 1, 2, 3)

	// A new session counts from its first report, which is one that was sent before.
	r.detach()
	r.send(commitOf(4))
	second := &uplink{}
	r.attach(second)
	r.send(commitOf(5))
	want("sent again", second.reports, 1, 2, 3, 4, 5)
	r.heartbeat(nil)
	if _, ok := r.acked(&pb.Heartbeat{Sequence: 1, Reports: 0}); ok {
		t.Error("a heartbeat of the session before is taken for one of this")
	}
	want("after an answer that tells of none", unacked(), 1, 2, 3, 4, 5)
	if _, ok := r.acked(&pb.Heartbeat{Sequence: 2, Reports: 3}); !ok {
		t.Error("the answer to the heartbeat is not known")
	}
	want("after three have come", unacked(), 4, 5)
	r.acked(&pb.Heartbeat{Sequence: 2, Reports: 99})
	want("after more than were sent", unacked())
}
