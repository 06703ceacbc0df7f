package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/pb"
)

// coordination is a JobManager made of functions.
type coordination struct {
	executor    func(ctx context.Context, s ExecutorSession) error
	taskManager func(ctx context.Context, s TaskManagerSession) error
	artifact    []byte
}

func (c *coordination) TaskManagerSession(ctx context.Context, s TaskManagerSession) error {
	return c.taskManager(ctx, s)
}

func (c *coordination) ExecutorSession(ctx context.Context, s ExecutorSession) error {
	return c.executor(ctx, s)
}

func (c *coordination) GetArtifact(_ context.Context, sha256 string) (io.ReadCloser, int64, error) {
	if sha256 != "abc" {
		return nil, 0, Errorf(ErrNotFound, "no artifact %s", sha256)
	}
	return io.NopCloser(bytes.NewReader(c.artifact)), int64(len(c.artifact)), nil
}

// serve starts a JobManager inside this process and a client of it.
func serve(t *testing.T, h Handlers) (*JobManager, *Server) {
	t.Helper()
	network := &InProcess{}
	l, err := network.Listen("jobmanager:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Serve(l, h)
	client, err := DialJobManager(server.Address(), DialOptions{Network: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return client, server
}

func heartbeat(n int) *pb.ExecutorReport {
	return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Heartbeat{Heartbeat: &pb.ExecutorHeartbeat{Sequence: uint64(n)}}}
}

func TestSessionCarriesMessagesBothWaysFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 8, 100
		client, _ := serve(t, Handlers{Coordination: &coordination{executor: func(_ context.Context, s ExecutorSession) error {
			for {
				m, err := s.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				answer := &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: m.GetHeartbeat().GetSequence()}}}
				if err := s.Send(answer); err != nil {
					return err
				}
			}
		}}})
		s, err := client.ExecutorSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for sender := range senders {
			group.Go(func() {
				for i := range each {
					if err := s.Send(heartbeat(sender*each + i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		seen := map[uint64]bool{}
		for range senders * each {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			seen[m.GetHeartbeat().GetSequence()] = true
		}
		group.Wait()
		if len(seen) != senders*each {
			t.Errorf("%d different answers, want %d", len(seen), senders*each)
		}
		group.Go(func() {
			if _, err := s.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("end of the session: %v, want EOF", err)
			}
		})
		s.Close()
		group.Wait()
		if err := s.Send(heartbeat(0)); err == nil {
			t.Error("a closed session takes messages")
		}
	})
}

func TestWhatWasSentBeforeTheEndArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := serve(t, Handlers{Coordination: &coordination{taskManager: func(_ context.Context, s TaskManagerSession) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			return s.Send(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Refused{Refused: &pb.HelloRefused{Reason: "old", Final: true}}})
		}}})
		s, err := client.TaskManagerSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Hello{Hello: &pb.TaskManagerHello{}}}); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetRefused().GetReason() != "old" {
			t.Errorf("received %v", m)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end of the session: %v, want EOF", err)
		}
		s.Close()
	})
}

func TestJobManagerClosesASessionFromAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := make(chan ExecutorSession, 1)
		ended := make(chan error, 1)
		client, _ := serve(t, Handlers{Coordination: &coordination{executor: func(_ context.Context, s ExecutorSession) error {
			sessions <- s
			_, err := s.Recv()
			ended <- err
			return nil
		}}})
		s, err := client.ExecutorSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		(<-sessions).Close()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end of the session: %v, want EOF", err)
		}
		if err := <-ended; err == nil {
			t.Error("the handler's Recv returned no error")
		}
		s.Close()
	})
}

func TestBrokenSessionIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan struct{})
		client, server := serve(t, Handlers{Coordination: &coordination{executor: func(_ context.Context, s ExecutorSession) error {
			close(accepted)
			_, err := s.Recv()
			return err
		}}})
		s, err := client.ExecutorSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-accepted
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Recv after the JobManager went: %v, want unavailable", err)
		}
		s.Close()
	})
}

func TestPeerThatDoesNotReadLosesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		client, _ := serve(t, Handlers{Coordination: &coordination{executor: func(_ context.Context, s ExecutorSession) error {
			// More than window and queue hold, in messages of 1 MiB.
			big := &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Notify{Notify: &pb.NotifyCheckpoint{Reason: strings.Repeat("x", 1<<20)}}}
			for {
				if err := s.Send(big); err != nil {
					result <- err
					return err
				}
			}
		}}})
		s, err := client.ExecutorSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, ErrUnavailable) {
			t.Errorf("Send to a peer that does not read: %v", err)
		}
		var recvErr error
		for recvErr == nil {
			_, recvErr = s.Recv()
		}
		s.Close()
	})
}

func TestErrorsKeepTextAndKind(t *testing.T) {
	for _, kind := range []error{ErrNotFound, ErrInvalid, ErrRefused, ErrStale, ErrTooLarge} {
		err := fromStatus(toStatus(fmt.Errorf("cancel: %w", Errorf(kind, "job 12 has ended"))), peerName{})
		if !errors.Is(err, kind) || err.Error() != "cancel: job 12 has ended" {
			t.Errorf("%v came back as %q", kind, err)
		}
	}
	if err := fromStatus(toStatus(errors.New("disk full")), peerName{}); err.Error() != "disk full" {
		t.Errorf("plain error came back as %q", err)
	}
	if toStatus(nil) != nil || fromStatus(nil, peerName{}) != nil {
		t.Error("no error became one")
	}
}

func TestUnreachableJobManagerIsNamedWithTheRemedy(t *testing.T) {
	l, err := TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := DialJobManager(address, DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = client.ClusterInfo(ctx, &pb.ClusterInfoRequest{})
	if !errors.Is(err, ErrUnavailable) {
		t.Fatalf("error is %v, want unavailable", err)
	}
	for _, want := range []string{address, "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	// A TaskManager logs it, too, and has no such flag.
	if strings.Contains(err.Error(), "--jobmanager") {
		t.Errorf("error %q names a flag of flinkctl's", err)
	}
	if _, err := DialJobManager("nowhere", DialOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("address without a port: %v", err)
	}
}

func TestArtifactsTravelInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{0, 1, artifactChunkBytes, 3*artifactChunkBytes + 5} {
			content := bytes.Repeat([]byte{'w'}, size)
			store := &uploads{}
			client, _ := serve(t, Handlers{Coordination: &coordination{artifact: content}, Client: store})
			r, n, err := client.GetArtifact(t.Context(), "abc")
			if err != nil {
				t.Fatal(err)
			}
			have, err := io.ReadAll(r)
			if err != nil || n != int64(size) || !bytes.Equal(have, content) {
				t.Errorf("artifact of %d bytes: read %d of %d, error %v", size, len(have), n, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if err := client.UploadArtifact(t.Context(), "abc", int64(size), bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(store.content, content) || store.size != int64(size) {
				t.Errorf("uploaded %d bytes of %d", len(store.content), size)
			}
		}
	})
}

func TestUploadReportsWhatTheJobManagerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := serve(t, Handlers{Client: &uploads{err: Errorf(ErrInvalid, "artifact is for plan9")}})
		err := client.UploadArtifact(t.Context(), "abc", 1<<30, endless{})
		if !errors.Is(err, ErrInvalid) || err.Error() != "artifact is for plan9" {
			t.Errorf("error is %v", err)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// uploads is a ClientHandler that only takes artifacts.
type uploads struct {
	ClientHandler
	content []byte
	size    int64
	err     error
}

func (u *uploads) UploadArtifact(_ context.Context, _ string, size int64, content io.Reader) (err error) {
	if u.err != nil {
		return u.err
	}
	u.size = size
	u.content, err = io.ReadAll(content)
	return err
}

func TestCreditFitsTheWindow(t *testing.T) {
	const frame = 32 << 10
	for channels := 1; channels <= 4096; channels *= 2 {
		credit := ChannelCredit(256<<10, channels, frame)
		if total := credit*int64(channels) + frame; total > streamWindowBytes {
			t.Errorf("%d channels: %d bytes do not fit the window", channels, total)
		}
		if credit < 1 {
			t.Errorf("%d channels: no credit", channels)
		}
	}
	if credit := ChannelCredit(256<<10, 4, frame); credit != 256<<10 {
		t.Errorf("four channels get %d, want what is configured", credit)
	}
}
