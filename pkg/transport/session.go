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
	// block and may be called from any goroutine. Messages arrive in order. A
	// large one travels in pieces and arrives whole. ErrTooLarge says that it
	// has more than SessionMessageBytesMax, and the session goes on; any other
	// error that the session is over. That a message was queued does not mean
	// that it arrives.
	Send(m *Out) error
	// SendAhead is Send for a message that may overtake those which wait, and
	// goes between the pieces of a large one: a heartbeat. What it says must
	// not depend on what was sent before it. Those sent ahead stay in order.
	SendAhead(m *Out) error
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
	incoming  assembler // of whoever calls Recv
	mu        struct {
		sync.Mutex
		ahead   []*Out // to be sent before queue
		queue   []queued[Out]
		closing bool
		err     error // why nothing more can be sent
	}
}

// queued is a message that waits, with its encoded size in bytes.
type queued[Out any] struct {
	m    *Out
	size int
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
	size := proto.Size(any(m).(proto.Message))
	if size > SessionMessageBytesMax {
		return Errorf(ErrTooLarge, "message of %d bytes: at most %d can be sent", size, SessionMessageBytesMax)
	}
	return s.enqueue(func() { s.mu.queue = append(s.mu.queue, queued[Out]{m: m, size: size}) })
}

// SendAhead implements Session.
func (s *session[Out, In]) SendAhead(m *Out) error {
	if size := proto.Size(any(m).(proto.Message)); size > MessageBytesMax {
		// gRPC would end the session for it.
		return Errorf(ErrTooLarge, "message of %d bytes: at most %d can be sent ahead", size, MessageBytesMax)
	}
	return s.enqueue(func() { s.mu.ahead = append(s.mu.ahead, m) })
}

// enqueue calls add, with the lock, unless nothing more can be sent.
func (s *session[Out, In]) enqueue(add func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.mu.queue) + len(s.mu.ahead)
	switch {
	case s.mu.err != nil:
		return s.mu.err
	case s.mu.closing:
		return errSessionClosed
	case waiting >= sessionQueueMax:
		// The queue is what bounds our memory; the peer has hung for long.
		s.mu.err = Errorf(ErrUnavailable, "the peer does not read: %d messages wait for it", waiting)
		s.cancel()
		s.wakeUp()
		return s.mu.err
	}
	add()
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
	m, err := s.receive()
	if err == nil {
		return m, nil
	}
	s.fail(err)
	s.endedOnce.Do(func() { close(s.ended) })
	return nil, err
}

// receive takes messages off the stream until one is whole.
func (s *session[Out, In]) receive() (*In, error) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			err = s.mapErr(err)
			if have, total := s.incoming.pending(); total > 0 && errors.Is(err, io.EOF) {
				err = Errorf(ErrUnavailable, "the peer has ended the session after %d of the %d bytes of a message", have, total)
			}
			return nil, err
		}
		chunk := any(m).(sessionMessage).GetChunk()
		if chunk == nil {
			return m, nil
		}
		content, err := s.incoming.add(chunk)
		if err == nil && content != nil {
			m, err = decodeAssembled[In](content)
		}
		if err != nil {
			s.cancel() // nothing behind it can be understood
			return nil, err
		}
		if content != nil {
			return m, nil
		}
	}
}

// decodeAssembled reads a message that came in pieces.
func decodeAssembled[In any](content []byte) (*In, error) {
	m := new(In)
	message := any(m).(sessionMessage)
	if err := proto.Unmarshal(content, message); err != nil {
		return nil, Errorf(ErrInvalid, "a message of %d bytes that came in pieces: %v", len(content), err)
	}
	if message.GetChunk() != nil {
		return nil, Errorf(ErrInvalid, "a message of %d bytes that came in pieces is itself a piece", len(content))
	}
	return m, nil
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
			isEmpty := len(batch) == 0 && len(s.mu.ahead) == 0
			over := s.mu.err != nil
			closing := s.mu.closing
			s.mu.Unlock()
			if over || isEmpty && closing {
				return
			}
			if isEmpty {
				break
			}
			if err := s.sendBatch(batch); err != nil {
				// Recv has the reason; Send only says that there is one.
				if !errors.Is(err, io.EOF) {
					s.fail(s.mapErr(err))
				} else {
					s.fail(Errorf(ErrUnavailable, "the session is over"))
				}
				// A message that cannot be sent must not be lost silently
				// while the session lives.
				s.cancel()
				return
			}
		}
	}
}

// sendBatch sends messages in order, and whatever goes ahead before each of
// them and between the pieces of a large one.
func (s *session[Out, In]) sendBatch(batch []queued[Out]) error {
	if err := s.sendThoseAhead(); err != nil {
		return err
	}
	for i := range batch {
		q := batch[i]
		batch[i].m = nil // what was sent is not kept for what follows
		send := func(m *Out) error {
			if err := s.stream.Send(m); err != nil {
				return err
			}
			return s.sendThoseAhead()
		}
		var err error
		if q.size <= chunkThresholdBytes {
			err = send(q.m)
		} else {
			err = eachChunk(any(q.m).(proto.Message), func(c *pb.Chunk) error { return send(chunkMessage[Out](c)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session[Out, In]) sendThoseAhead() error {
	s.mu.Lock()
	ahead := s.mu.ahead
	s.mu.ahead = nil
	s.mu.Unlock()
	for _, m := range ahead {
		if err := s.stream.Send(m); err != nil {
			return err
		}
	}
	return nil
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
