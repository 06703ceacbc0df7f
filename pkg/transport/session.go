package transport

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/pb"
)

// The ends of the sessions.
type (
	// TaskManagerSession is the JobManager's end of a TaskManager's session.
	TaskManagerSession = Session[pb.TaskManagerCommand, pb.TaskManagerReport]
	// TaskManagerUplink is the TaskManager's end.
	TaskManagerUplink = Session[pb.TaskManagerReport, pb.TaskManagerCommand]
	// ExecutorSession is the JobManager's end of an executor's session.
	ExecutorSession = Session[pb.ExecutorCommand, pb.ExecutorReport]
	// ExecutorUplink is the executor's end.
	ExecutorUplink = Session[pb.ExecutorReport, pb.ExecutorCommand]
)

// Session is one end of a bidirectional stream.
type Session[Out, In any] interface {
	// Send queues a message, which must not be changed afterwards. It does not
	// block and may be called from any goroutine. ErrTooLarge says that the
	// message does not fit, and the session goes on; any other error that the
	// session is over. That a message was queued does not mean that it arrives.
	Send(m *Out) error
	// Recv waits for the next message. io.EOF says that the other side ended
	// the session, ErrUnavailable that it broke. One goroutine at a time.
	Recv() (*In, error)
	// Close ends the session after what is queued has been sent. It may be
	// called from any goroutine, and more than once. Recv returns an error
	// once the session has ended. The JobManager's end returns at once; the
	// other waits a little for the JobManager to have read everything.
	Close()
}

// errSessionClosed is what Send says after Close.
var errSessionClosed = errors.New("session is closed")

// messageStream is what server and client streams of gRPC have in common.
type messageStream[Out, In any] interface {
	Send(m *Out) error
	Recv() (*In, error)
}

// session puts a bounded queue and its sending goroutine in front of a gRPC
// stream, so that whoever sends never waits for the network.
type session[Out, In any] struct {
	stream messageStream[Out, In]
	mapErr func(error) error
	// cancel ends the stream without sending what is queued. It may be called
	// more than once.
	cancel    func()
	wake      chan struct{} // capacity 1: something was queued, or closing was set
	done      chan struct{} // closed when the sending goroutine has ended
	ended     chan struct{} // closed when Recv has returned an error
	endedOnce sync.Once
	mu        struct {
		sync.Mutex
		queue   []*Out
		closing bool
		err     error // why nothing more can be sent
	}
}

// newSession starts the sending goroutine; it ends after closeQueue, or when
// the stream breaks.
func newSession[Out, In any](stream messageStream[Out, In], mapErr func(error) error, cancel func()) *session[Out, In] {
	s := &session[Out, In]{stream: stream, mapErr: mapErr, cancel: cancel,
		wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	go s.sendQueued()
	return s
}

// Send implements Session.
func (s *session[Out, In]) Send(m *Out) error {
	// gRPC would end the session for it.
	if size := proto.Size(any(m).(proto.Message)); size > MessageBytesMax {
		return Errorf(ErrTooLarge, "message of %d bytes: at most %d can be sent", size, MessageBytesMax)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.err != nil:
		return s.mu.err
	case s.mu.closing:
		return errSessionClosed
	case len(s.mu.queue) >= sessionQueueMax:
		// The queue is what bounds our memory; the peer has hung for long.
		s.mu.err = Errorf(ErrUnavailable, "the peer does not read: %d messages wait for it", len(s.mu.queue))
		s.cancel()
		s.wakeUp()
		return s.mu.err
	}
	s.mu.queue = append(s.mu.queue, m)
	s.wakeUp()
	return nil
}

func (s *session[Out, In]) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Recv implements Session.
func (s *session[Out, In]) Recv() (*In, error) {
	m, err := s.stream.Recv()
	if err == nil {
		return m, nil
	}
	err = s.mapErr(err)
	s.fail(err)
	s.endedOnce.Do(func() { close(s.ended) })
	return nil, err
}

// closeQueue lets the sending goroutine end once the queue is empty.
func (s *session[Out, In]) closeQueue() {
	s.mu.Lock()
	s.mu.closing = true
	s.mu.Unlock()
	s.wakeUp()
}

// fail records why the session is over, if nothing was recorded before.
func (s *session[Out, In]) fail(err error) {
	s.mu.Lock()
	if s.mu.err == nil {
		if errors.Is(err, io.EOF) {
			err = Errorf(ErrUnavailable, "the peer has ended the session")
		}
		s.mu.err = err
	}
	s.mu.Unlock()
	s.wakeUp()
}

// sendQueued is the sending goroutine. gRPC unblocks a Send when the stream
// ends, so it always comes to an end.
func (s *session[Out, In]) sendQueued() {
	defer close(s.done)
	for range s.wake {
		for {
			s.mu.Lock()
			batch := s.mu.queue
			s.mu.queue = nil
			over := s.mu.err != nil
			closing := s.mu.closing
			s.mu.Unlock()
			if over || len(batch) == 0 && closing {
				return
			}
			if len(batch) == 0 {
				break
			}
			for _, m := range batch {
				if err := s.stream.Send(m); err != nil {
					// Recv has the reason; Send only says that there is one.
					if !errors.Is(err, io.EOF) {
						s.fail(s.mapErr(err))
					} else {
						s.fail(Errorf(ErrUnavailable, "the session is over"))
					}
					// A message that cannot be sent, such as one that is too
					// large, must not be lost silently while the session lives.
					s.cancel()
					return
				}
			}
		}
	}
}

// serverSession is the JobManager's end.
type serverSession[Out, In any] struct {
	*session[Out, In]
	aborted, closed         chan struct{}
	abortedOnce, closedOnce sync.Once
}

// Close implements Session.
func (s *serverSession[Out, In]) Close() { s.closedOnce.Do(func() { close(s.closed) }) }

// serveSession runs handle until it returns or the session is closed, sends
// what is queued and ends the stream. goroutines counts handle, which may
// outlive the stream by a moment: only its Recv tells it that the end has come.
func serveSession[Out, In any](stream messageStream[Out, In], goroutines *sync.WaitGroup, handle func(Session[Out, In]) error) error {
	s := &serverSession[Out, In]{aborted: make(chan struct{}), closed: make(chan struct{})}
	abort := func() { s.abortedOnce.Do(func() { close(s.aborted) }) }
	s.session = newSession(stream, func(err error) error { return fromStatus(err, peerName{role: "peer"}) }, abort)
	result := make(chan error, 1)
	goroutines.Go(func() { result <- handle(s) })
	var err error
	select {
	case err = <-result:
	case <-s.closed:
	case <-s.aborted:
	}
	s.closeQueue()
	select {
	case <-s.done:
	case <-s.aborted:
	}
	return toStatus(err)
}

// sessionCloseTimeout is how long the Close of a client's end waits for its
// peer: long enough for what was queued to arrive, short enough for a process
// that has been told to go.
const sessionCloseTimeout = 2 * time.Second

// clientSession is the end of the TaskManager or executor: it owns the
// stream's context.
type clientSession[Out, In any] struct {
	*session[Out, In]
	closeSend func() error
	once      sync.Once
}

// Close implements Session. Here it waits until the peer has ended the
// session in return, so that what was queued has been read, or for
// sessionCloseTimeout. Somebody has to go on calling Recv meanwhile.
func (s *clientSession[Out, In]) Close() {
	s.once.Do(func() {
		timeout := time.NewTimer(sessionCloseTimeout)
		defer timeout.Stop()
		s.closeQueue()
		select {
		case <-s.done:
			if s.closeSend() == nil {
				select {
				case <-s.ended:
				case <-timeout.C:
				}
			}
		case <-timeout.C:
		}
		s.cancel()
		<-s.done
	})
}
