package runtime

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

const (
	// outputBudgetBytes bounds the output that is on its way to the JobManager:
	// what was sent since the last heartbeat that it has acknowledged, which
	// travels behind it.
	outputBudgetBytes = 4 << 20
	// helloTimeout bounds how long the JobManager may take to answer a hello.
	helloTimeout = 10 * time.Second
)

// serveSession opens a session and serves it until it ends. accepted says
// whether the JobManager had accepted it.
func (t *TaskManager) serveSession(ctx context.Context) (accepted bool, err error) {
	sessionContext, cancel := context.WithCancel(ctx)
	defer cancel()
	uplink, err := t.options.Connect(sessionContext)
	if err != nil {
		return false, err
	}
	var closing sync.WaitGroup
	defer closing.Wait()
	defer uplink.Close()
	greeted := time.Now()
	answer, err := t.greet(uplink)
	if err != nil {
		return false, err
	}
	s := &session{
		uplink:   uplink,
		interval: time.Duration(answer.GetHeartbeatIntervalMs()) * time.Millisecond,
		cutOff:   time.Duration(cutOffShare * float64(answer.GetHeartbeatTimeoutMs()) * float64(time.Millisecond)),
		acked:    make(chan struct{}, 1),
	}
	if s.interval <= 0 || s.cutOff <= 0 {
		return false, fmt.Errorf("the JobManager wants heartbeats every %s and counts %s as silence", s.interval, s.cutOff)
	}
	s.mu.sent = map[uint64]sentHeartbeat{}
	t.startCutOff(s, greeted)
	t.setUplink(uplink)
	defer t.setUplink(nil)
	t.log.Info("registered with the JobManager")
	if t.options.Registered != nil {
		t.options.Registered()
	}

	// Close needs a reader while it waits for the peer, so the reader below is
	// not the one that closes.
	var senders sync.WaitGroup
	defer senders.Wait()
	sendersContext, stopSenders := context.WithCancel(ctx)
	defer stopSenders()
	senders.Go(func() { s.sendHeartbeats(sendersContext) })
	senders.Go(func() { s.sendOutput(sendersContext, t.output) })
	closing.Go(func() {
		<-sendersContext.Done()
		uplink.Close()
	})
	for {
		command, err := uplink.Recv()
		if err != nil {
			return true, err
		}
		t.handle(s, command)
	}
}

// greet sends the hello and waits for its answer.
func (t *TaskManager) greet(uplink transport.TaskManagerUplink) (*pb.HelloAccepted, error) {
	if err := uplink.Send(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Hello{Hello: t.hello()}}); err != nil {
		return nil, err
	}
	impatient := time.AfterFunc(helloTimeout, uplink.Close)
	defer impatient.Stop()
	first, err := uplink.Recv()
	if err != nil {
		return nil, err
	}
	if refused := first.GetRefused(); refused != nil {
		if refused.GetFinal() {
			return nil, fmt.Errorf("%w: %s", errRefused, refused.GetReason())
		}
		return nil, fmt.Errorf("the JobManager refused the session: %s", refused.GetReason())
	}
	if first.GetAccepted() == nil {
		return nil, fmt.Errorf("the JobManager answered the hello by %T", first.GetKind())
	}
	return first.GetAccepted(), nil
}

func (t *TaskManager) setUplink(uplink transport.TaskManagerUplink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.uplink = uplink
}

// session is what belongs to one session.
type session struct {
	uplink           transport.TaskManagerUplink
	interval, cutOff time.Duration
	// acked has a token when the output's budget has grown.
	acked chan struct{}
	mu    struct {
		sync.Mutex
		sent        map[uint64]sentHeartbeat // by sequence; bounded by the session's life without an answer, which cutOff and the JobManager end
		outputBytes int64                    // sent in all
		ackedBytes  int64                    // of these, arrived
	}
}

type sentHeartbeat struct {
	at          time.Time
	outputBytes int64
}

// handle carries out one command.
func (t *TaskManager) handle(s *session, command *pb.TaskManagerCommand) {
	switch kind := command.GetKind().(type) {
	case *pb.TaskManagerCommand_Heartbeat:
		if at, ok := s.acknowledge(kind.Heartbeat.GetSequence()); ok {
			t.postponeCutOff(s, at)
		}
	case *pb.TaskManagerCommand_LaunchExecutor:
		t.launch(kind.LaunchExecutor)
	case *pb.TaskManagerCommand_StopExecutor:
		t.stop(kind.StopExecutor)
	case *pb.TaskManagerCommand_ForgetJob:
		t.kept.forget(ids.JobID(kind.ForgetJob.GetJobId()))
	case *pb.TaskManagerCommand_Accepted, *pb.TaskManagerCommand_Refused:
		t.log.Warn("answer to a hello came twice")
	default:
		t.log.Warn("command of unknown kind ignored", zap.String("kind", fmt.Sprintf("%T", kind)))
	}
}

func (s *session) acknowledge(sequence uint64) (sentAt time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.mu.sent[sequence]
	if !ok {
		return time.Time{}, false
	}
	for earlier := range s.mu.sent {
		if earlier <= sequence {
			delete(s.mu.sent, earlier)
		}
	}
	s.mu.ackedBytes = h.outputBytes
	select {
	case s.acked <- struct{}{}:
	default:
	}
	return h.at, true
}

func (s *session) sendHeartbeats(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for sequence := uint64(1); ; sequence++ {
		s.mu.Lock()
		s.mu.sent[sequence] = sentHeartbeat{at: time.Now(), outputBytes: s.mu.outputBytes}
		s.mu.Unlock()
		if err := s.uplink.Send(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Heartbeat{
			Heartbeat: &pb.Heartbeat{Sequence: sequence},
		}}); err != nil {
			return // the session is over, as its reader knows
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendOutput sends what executors printed, within the budget.
func (s *session) sendOutput(ctx context.Context, output *jobOutput) {
	for {
		s.mu.Lock()
		room := outputBudgetBytes - (s.mu.outputBytes - s.mu.ackedBytes)
		s.mu.Unlock()
		if room > 0 {
			messages, taken := output.take(int(room))
			s.mu.Lock()
			s.mu.outputBytes += int64(taken)
			s.mu.Unlock()
			var err error
			for _, m := range messages {
				if err = s.uplink.Send(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_LogLines{LogLines: m}}); err != nil {
					break
				}
			}
			// What the end of the session loses is not waited for either.
			output.markSent(messages)
			if err != nil {
				return
			}
		}
		ready := output.ready
		if room <= 0 {
			ready = nil
		}
		select {
		case <-ready:
		case <-s.acked:
		case <-ctx.Done():
			return
		}
	}
}

// startCutOff begins to count the silence of the JobManager from when the
// hello was sent, which it has answered.
func (t *TaskManager) startCutOff(s *session, greeted time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.cutOff == nil {
		t.mu.cutOff = time.AfterFunc(s.cutOff, func() {
			t.killAll("cut off from the JobManager")
		})
	}
	t.resetCutOffLocked(s, greeted)
}

func (t *TaskManager) postponeCutOff(s *session, acknowledged time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resetCutOffLocked(s, acknowledged)
}

// resetCutOffLocked lets the timer fire when the JobManager has been silent
// since the given moment for too long. It goes on when the session ends.
func (t *TaskManager) resetCutOffLocked(s *session, since time.Time) {
	if !t.mu.stopping {
		t.mu.cutOff.Reset(max(0, s.cutOff-time.Since(since)))
	}
}

// launch starts an executor without waiting for it.
func (t *TaskManager) launch(command *pb.LaunchExecutor) {
	id := t.executorOfRef(command.GetExecutor())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.stopping || t.mu.running[id] != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &supervised{id: id, cancel: cancel}
	t.mu.running[id] = s
	t.supervisors.Go(func() { t.supervise(ctx, s, command) })
}

func (t *TaskManager) stop(command *pb.StopExecutor) {
	id := t.executorOfRef(command.GetExecutor())
	t.mu.Lock()
	s := t.mu.running[id]
	t.mu.Unlock()
	if s == nil {
		// It has ended already, which its exit report has told; one more does no harm.
		return
	}
	t.log.Debug("stopping executor", logfield.Executor(id), zap.Bool("kill", command.GetKill()))
	if command.GetKill() {
		s.kill()
		return
	}
	s.endWithin(time.Duration(command.GetGraceMs()) * time.Millisecond)
}
