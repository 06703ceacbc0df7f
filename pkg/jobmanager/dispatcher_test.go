package jobmanager

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// hookedWire lets a test meddle with what the server sends.
type hookedWire[Out, In any] struct {
	*wire[Out, In]
	send func(m *Out) error // called first; an error is what Send returns
}

func (w hookedWire[Out, In]) Send(m *Out) error {
	if err := w.send(m); err != nil {
		return err
	}
	return w.wire.Send(m)
}

func TestCommandThatDoesNotFitFailsTheJobInsteadOfBeingForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		tm := r.taskManager(helloOf("tm", 1))
		id, err := r.submit(spec("job", 1))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		executor := hookedWire[pb.ExecutorCommand, pb.ExecutorReport]{
			wire: newWire[pb.ExecutorCommand, pb.ExecutorReport](),
			send: func(m *pb.ExecutorCommand) error {
				if m.GetDeploy() == nil {
					return nil
				}
				return transport.Errorf(transport.ErrTooLarge, "message of 99 bytes: at most 98 can be sent")
			},
		}
		r.serving.Go(func() {
			defer executor.Close()
			_ = r.ExecutorSession(context.Background(), executor)
		})
		executor.in <- &pb.ExecutorReport{Kind: &pb.ExecutorReport_Hello{Hello: &pb.ExecutorHello{
			Executor: launches(tm.drain())[0].GetExecutor(), TaskManagerId: "tm", DataAddress: "host:1", WireVersion: transport.WireVersion,
		}}}
		synctest.Wait()
		status := r.status(id)
		if status.GetStatus() != coordinator.FailedStatus.String() || !strings.Contains(status.GetCause().GetMessage(), "message of 99 bytes") {
			t.Errorf("the job is %s because of %q", status.GetStatus(), status.GetCause().GetMessage())
		}
		if kills(tm.drain()) == 0 {
			t.Error("the executor, which waits for its tasks, was not killed")
		}
	})
}

// Two sessions of one TaskManager may be served at once: a JobManager that was
// stopped for a while finds the one that was given up beside the new one.
func TestTaskManagerThatRegistersTwiceAtOnceKeepsItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		held := make(chan struct{})
		slow := hookedWire[pb.TaskManagerCommand, pb.TaskManagerReport]{
			wire: newWire[pb.TaskManagerCommand, pb.TaskManagerReport](),
			send: func(m *pb.TaskManagerCommand) error {
				if m.GetAccepted() != nil {
					<-held
				}
				return nil
			},
		}
		r.serving.Go(func() {
			defer slow.Close()
			_ = r.TaskManagerSession(context.Background(), slow)
		})
		slow.in <- &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Hello{Hello: helloOf("tm", 2)}}
		synctest.Wait()
		live := r.taskManager(helloOf("tm", 2))
		synctest.Wait()
		close(held)
		synctest.Wait()
		slow.Close()
		synctest.Wait()
		// Whoever still has a session has slots; who has none comes back.
		select {
		case <-live.closed:
			live = r.taskManager(helloOf("tm", 2))
			synctest.Wait()
		default:
		}
		info, err := r.ClusterInfo(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if info.GetTaskManagers() != 1 || info.GetSlotsFree() != 2 {
			t.Errorf("%d TaskManagers with %d free slots, want 1 with 2", info.GetTaskManagers(), info.GetSlotsFree())
		}
		live.Close()
	})
}

func TestI8FencedLeaderCutsItsExecutorsOffAndGivesTheSlotsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newRig(t)
		defer old.close()
		id, tm, ref, executor := connect(t, old, nil)
		if deploys := executor.drain(); len(deploys) != 2 {
			t.Fatalf("commands to the executor: %v", deploys)
		}
		next, err := Open(t.Context(), old.options)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		synctest.Wait()
		// The old leader hears of it with its next write: that all tasks run.
		for vertex := range int32(2) {
			executor.in <- &pb.ExecutorReport{Kind: &pb.ExecutorReport_TaskStatus{TaskStatus: &pb.TaskStatusChanged{
				Subtask: &pb.SubtaskRef{Vertex: vertex}, Status: pb.TaskStatus_TASK_STATUS_RUNNING,
			}}}
		}
		synctest.Wait()
		if kills(tm.drain()) != 1 {
			t.Error("the executor of the old attempt was not killed")
		}
		select {
		case <-executor.closed:
		default:
			t.Error("the executor of the old attempt keeps its session")
		}
		again := old.executor(&pb.ExecutorHello{Executor: ref, TaskManagerId: "tm", DataAddress: "host:1", WireVersion: transport.WireVersion})
		synctest.Wait()
		if got := again.drain(); len(got) != 1 || !got[0].GetRefused().GetFinal() {
			t.Errorf("answer to the executor that comes back: %v", got)
		}
		if info, err := old.ClusterInfo(t.Context(), nil); err != nil || info.GetSlotsFree() != 1 {
			t.Errorf("%d slots are free, want 1 (%v)", info.GetSlotsFree(), err)
		}
		if _, err := old.JobStatus(t.Context(), &pb.JobStatusRequest{JobId: id}); err == nil {
			t.Error("the old leader still speaks for the job")
		}
		if status, err := next.JobStatus(t.Context(), &pb.JobStatusRequest{JobId: id}); err != nil || status.GetStatus() == coordinator.FailedStatus.String() {
			t.Errorf("at the new leader the job is %v (%v)", status.GetStatus(), err)
		}
	})
}
