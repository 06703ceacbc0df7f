package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/pb"
)

// acknowledgement is a report with that many handles, each with inline state.
func acknowledgement(handles int, inline []byte) *pb.ExecutorReport {
	state := &pb.OperatorSubtaskState{Uid: "counts"}
	for i := range handles {
		h := &pb.StateHandle{Name: fmt.Sprintf("chk-17/3.1-2.0.%d", i), Size: 1 << 30, Inline: inline}
		state.Lists = append(state.Lists, &pb.OperatorStateHandle{Name: "list", Handle: h})
	}
	return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Acked{Acked: &pb.CheckpointAcked{
		State: &pb.SubtaskState{Operators: []*pb.OperatorSubtaskState{state}},
	}}}
}

// handleCount is how many handles an acknowledgement has.
func handleCount(m *pb.ExecutorReport) int {
	return len(m.GetAcked().GetState().GetOperators()[0].GetLists())
}

// TestLargeMessagesPassBothWays: the handles of a large acknowledgement and the
// same in a deployment arrive whole and in order with what is sent around them;
// what has more than any message may is refused by name, and does not cost the
// session.
func TestLargeMessagesPassBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := serve(t, Handlers{Coordination: &coordination{executor: func(_ context.Context, s ExecutorSession) error {
			for {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				answer := &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: m.GetHeartbeat().GetSequence()}}}
				if acked := m.GetAcked(); acked != nil {
					answer = &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Deploy{Deploy: &pb.DeployTasks{
						Tasks: []*pb.TaskDeployment{{Restore: acked.GetState().GetOperators()}},
					}}}
				}
				if err := s.Send(answer); err != nil {
					return err
				}
			}
		}}})
		s, err := client.ExecutorSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inline := bytes.Repeat([]byte("abcdefgh"), 1<<17)
		sent := []*pb.ExecutorReport{heartbeat(1), acknowledgement(70, inline), heartbeat(2), acknowledgement(30_000, nil), acknowledgement(3, inline), heartbeat(3)}
		for i, m := range sent {
			if i == 3 {
				if err := s.Send(acknowledgement(1024, inline)); !errors.Is(err, ErrTooLarge) {
					t.Errorf("error of a message that is too large: %v", err)
				}
			}
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range sent {
			answer, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetAcked() == nil {
				if answer.GetHeartbeat().GetSequence() != m.GetHeartbeat().GetSequence() {
					t.Fatalf("answered was %.100v, sent %.100v", answer, m)
				}
				continue
			}
			back := answer.GetDeploy().GetTasks()[0].GetRestore()
			if !proto.Equal(back[0], m.GetAcked().GetState().GetOperators()[0]) {
				t.Errorf("%d handles came back otherwise than they were sent", handleCount(m))
			}
		}
		s.Close()
	})
}

// recordedStream is the sending half of a stream. It keeps what is sent.
type recordedStream struct {
	sent chan *pb.ExecutorReport
	over chan struct{}
	// before is called before each message is taken.
	before func(m *pb.ExecutorReport)
}

func (r *recordedStream) Send(m *pb.ExecutorReport) error {
	if r.before != nil {
		r.before(m)
	}
	select {
	case r.sent <- m:
		return nil
	case <-r.over:
		return io.EOF
	}
}

func (r *recordedStream) Recv() (*pb.ExecutorCommand, error) {
	<-r.over
	return nil, io.EOF
}

// TestHeartbeatsGoBetweenThePiecesOfALargeMessage: one is sent ahead while the
// pieces of a message are on their way, and one behind it in order.
func TestHeartbeatsGoBetweenThePiecesOfALargeMessage(t *testing.T) {
	r := &recordedStream{sent: make(chan *pb.ExecutorReport, 1000), over: make(chan struct{})}
	var s *session[pb.ExecutorReport, pb.ExecutorCommand]
	pieces := 0
	started := make(chan struct{})
	r.before = func(m *pb.ExecutorReport) {
		if m.GetChunk() == nil {
			return
		}
		if pieces++; pieces == 3 {
			if err := s.SendAhead(heartbeat(7)); err != nil {
				t.Error(err)
			}
			if err := s.Send(heartbeat(8)); err != nil {
				t.Error(err)
			}
			s.closeQueue()
		}
	}
	s = newSession(&gatedStream{recordedStream: r, started: started}, func(err error) error { return err }, func() {})
	large := acknowledgement(5, make([]byte, 1<<20))
	if err := s.Send(large); err != nil {
		t.Fatal(err)
	}
	close(started)
	<-s.done
	close(r.over)
	close(r.sent)

	var order []string
	assembled := 0
	a := &assembler{}
	for m := range r.sent {
		if c := m.GetChunk(); c != nil {
			order = append(order, "piece")
			content, err := a.add(c)
			if err != nil {
				t.Fatal(err)
			}
			if content == nil {
				continue
			}
			whole, err := decodeAssembled[pb.ExecutorReport](content)
			if err != nil || !proto.Equal(whole, large) {
				t.Errorf("the message came out otherwise, error %v", err)
			}
			assembled++
			continue
		}
		order = append(order, fmt.Sprint(m.GetHeartbeat().GetSequence()))
	}
	if want := (proto.Size(large) + chunkBytes - 1) / chunkBytes; assembled != 1 || pieces != want {
		t.Errorf("%d messages came in %d pieces, want one in %d", assembled, pieces, want)
	}
	if slices.Index(order, "7") != 3 || order[len(order)-1] != "8" {
		t.Errorf("order is %v: want 7 behind the third piece and 8 at the end", order)
	}
}

// gatedStream holds back what is sent until started is closed, so that a test
// knows its own session.
type gatedStream struct {
	*recordedStream
	started chan struct{}
}

func (g *gatedStream) Send(m *pb.ExecutorReport) error {
	<-g.started
	return g.recordedStream.Send(m)
}

// receivedStream is the receiving half of a stream.
type receivedStream struct{ messages []*pb.ExecutorReport }

func (r *receivedStream) Send(*pb.ExecutorCommand) error { return nil }

func (r *receivedStream) Recv() (*pb.ExecutorReport, error) {
	if len(r.messages) == 0 {
		return nil, io.EOF
	}
	m := r.messages[0]
	r.messages = r.messages[1:]
	return m, nil
}

// piece is a message with a piece of another.
func piece(total uint64, data string) *pb.ExecutorReport {
	return chunkMessage[pb.ExecutorReport](&pb.Chunk{Total: total, Data: []byte(data)})
}

// TestPiecesThatMakeNoMessageEndTheSession: nothing that a peer sends is taken
// for something else, and what it announces takes no memory.
func TestPiecesThatMakeNoMessageEndTheSession(t *testing.T) {
	encoded := func(m *pb.ExecutorReport) string {
		content, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	beat := encoded(heartbeat(9))
	nested := encoded(piece(1, "x"))
	for _, c := range []struct {
		name     string
		messages []*pb.ExecutorReport
		kind     error
		text     string
	}{
		{"truncated", []*pb.ExecutorReport{piece(1<<30, "abc"), heartbeat(1)}, ErrUnavailable, "after 3 of the 1073741824 bytes"},
		{"too large", []*pb.ExecutorReport{piece(1<<30+1, "abc")}, ErrTooLarge, "1073741825 bytes: at most 1073741824"},
		{"largest number", []*pb.ExecutorReport{piece(1<<64-1, "abc")}, ErrTooLarge, "at most"},
		{"no first piece", []*pb.ExecutorReport{piece(0, "abc")}, ErrInvalid, "without the first"},
		{"two first pieces", []*pb.ExecutorReport{piece(9, "abc"), piece(9, "def")}, ErrInvalid, "begins after 3 of the 9"},
		{"too much", []*pb.ExecutorReport{piece(5, "abc"), piece(0, "def")}, ErrInvalid, "when 3 of the 5 bytes"},
		{"too much at once", []*pb.ExecutorReport{piece(2, "abc")}, ErrInvalid, "when 0 of the 2 bytes"},
		{"empty", []*pb.ExecutorReport{piece(5, "")}, ErrInvalid, "is empty"},
		{"empty second", []*pb.ExecutorReport{piece(5, "abc"), piece(0, "")}, ErrInvalid, "is empty"},
		{"no message", []*pb.ExecutorReport{piece(4, "\xff\xff\xff\xff")}, ErrInvalid, "came in pieces"},
		{"piece of a piece", []*pb.ExecutorReport{piece(uint64(len(nested)), nested)}, ErrInvalid, "itself a piece"},
		{"whole", []*pb.ExecutorReport{piece(uint64(len(beat)), beat[:1]), heartbeat(1), piece(0, beat[1:])}, io.EOF, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cancelled := false
			s := newSession(&receivedStream{messages: c.messages}, func(err error) error { return err }, func() { cancelled = true })
			var beats []uint64
			var err error
			for err == nil {
				var m *pb.ExecutorReport
				if m, err = s.Recv(); err == nil {
					beats = append(beats, m.GetHeartbeat().GetSequence())
				}
			}
			<-s.done
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error is %v, want one with %q", err, c.text)
			}
			if c.name == "whole" && !slices.Equal(beats, []uint64{1, 9}) {
				t.Errorf("received %v", beats)
			}
			if hostile := errors.Is(c.kind, ErrInvalid) || errors.Is(c.kind, ErrTooLarge); cancelled != hostile {
				t.Errorf("stream cancelled: %v", cancelled)
			}
			if c := cap(s.incoming.data); c > chunkThresholdBytes {
				t.Errorf("%d bytes are held", c)
			}
		})
	}
}

// FuzzAssembler: whatever pieces come, what comes out is what went in, and no
// more memory is held than came in, as much again, and a constant.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{4, 2, 'a', 'b', 0, 2, 'c', 'd'})
	f.Add([]byte{1, 1, 'a', 1, 1, 'b'})
	f.Add([]byte{255, 3, 'a', 'b', 'c'})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		a := &assembler{}
		var want []byte
		total := uint64(0)
		for len(script) >= 2 {
			// A piece is its total, in powers of two from 64 on, its length, and its bytes.
			c := &pb.Chunk{Total: uint64(script[0])}
			if script[0] >= 64 {
				c.Total = 1 << (script[0] % 64)
			}
			n := min(int(script[1]), len(script)-2)
			c.Data, script = script[2:2+n], script[2+n:]
			if total == 0 {
				total = c.GetTotal()
			}
			want = append(want, c.GetData()...)
			content, err := a.add(c)
			if err != nil {
				if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrInvalid) {
					t.Fatalf("error is %v", err)
				}
				return
			}
			if held := cap(a.data); held > max(2*len(want), chunkThresholdBytes) {
				t.Fatalf("%d bytes are held when %d have come", held, len(want))
			}
			if content == nil {
				if uint64(len(want)) >= total {
					t.Fatalf("%d of %d bytes make no message", len(want), total)
				}
				continue
			}
			if uint64(len(content)) != total || !bytes.Equal(content, want) {
				t.Fatalf("%d bytes came out, want %d", len(content), total)
			}
			want, total = nil, 0
		}
	})
}
