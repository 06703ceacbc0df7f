package task

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// scripted is a subtask that writes down its calls and does what a test wants.
type scripted struct {
	host    subtask.Host
	pace    operator.Pace
	calls   []string
	ended   bool
	credit  int64
	now     int64 // as last told
	alarm   int64 // when Advance is wanted, 0 for never
	onStart func()
	onStep  func() subtask.Progress
	// onFrame is called for each frame.
	onFrame func(in int, f element.Frame)
	onClose func() error
	// onCancel stands in for the end that a cancel is.
	onCancel func(keepUpTo ids.CheckpointID)
}

func (s *scripted) call(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *scripted) Start() {
	s.call("start")
	if s.onStart != nil {
		s.onStart()
	}
}

func (s *scripted) Receive(in int, f element.Frame) {
	s.call("receive %d %s", in, f)
	f.Free()
	if s.onFrame != nil {
		s.onFrame(in, f)
	}
}

func (s *scripted) AddCredit(out subtask.Output, bytes int64) {
	s.call("credit %d.%d %d", out.Edge, out.Channel, bytes)
	s.credit += bytes
}

func (s *scripted) Trigger(b element.Barrier)                  { s.call("trigger %d", b.Checkpoint) }
func (s *scripted) NotifyComplete(id ids.CheckpointID)         { s.call("complete %d", id) }
func (s *scripted) NotifyAborted(id ids.CheckpointID)          { s.call("aborted %d", id) }
func (s *scripted) AssignSplits(a coordinator.SplitAssignment) { s.call("assign %d", len(a.Splits)) }
func (s *scripted) Complete(done subtask.Done)                 { done() }
func (s *scripted) Pace() *operator.Pace                       { return &s.pace }

func (s *scripted) Fail(err error, stack string) {
	s.end(subtask.StatusReport{Status: coordinator.Failed,
		Failure: coordinator.Failure{Kind: coordinator.UserFailure, Message: err.Error(), Stack: stack}})
}

func (s *scripted) EndLoop() {}

func (s *scripted) Finish() { s.end(subtask.StatusReport{Status: coordinator.Finished}) }
func (s *scripted) Cancel(keepUpTo ids.CheckpointID) {
	if s.onCancel != nil {
		s.onCancel(keepUpTo)
		return
	}
	s.end(subtask.StatusReport{Status: coordinator.Canceled})
}

func (s *scripted) end(r subtask.StatusReport) {
	if !s.ended {
		s.ended = true
		s.call("end %s", r.Status)
		s.host.Report(r)
	}
}

func (s *scripted) Step(int) subtask.Progress {
	if s.ended {
		return subtask.Ended
	}
	if s.onStep != nil {
		return s.onStep()
	}
	return subtask.Idle
}

func (s *scripted) Flush()               { s.call("flush") }
func (s *scripted) SetInputRate(float64) {}

// Advance fires the alarm once its time has come.
func (s *scripted) Advance(now int64) {
	s.now = now
	if s.alarm != 0 && now >= s.alarm {
		s.call("alarm %d", now-s.alarm)
		s.alarm = 0
	}
}

func (s *scripted) NextAdvance() (int64, bool) { return s.alarm, s.alarm != 0 }

func (s *scripted) Metrics() subtask.Metrics { return subtask.Metrics{RecordsIn: int64(len(s.calls))} }

func (s *scripted) Close() error {
	s.call("close")
	if s.onClose != nil {
		return s.onClose()
	}
	return nil
}

// reports remembers what a task reported.
type reports struct {
	mu  sync.Mutex
	all []subtask.Report
}

func (r *reports) add(_ ids.SubtaskID, report subtask.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, report)
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// last is the last report, which says how the task ended.
func (r *reports) last(t *testing.T) subtask.StatusReport {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Fatal("nothing was reported")
	}
	status, ok := r.all[len(r.all)-1].(subtask.StatusReport)
	if !ok {
		t.Fatalf("last report is %v", r.all[len(r.all)-1])
	}
	return status
}

type noWire struct{}

func (noWire) Send(_ subtask.Output, f element.Frame) { f.Free() }
func (noWire) Grant(int, int64)                       {}

// cleanupTimeout is what tasks of these tests have for cleaning up.
const cleanupTimeout = 7 * time.Second

func startTask(s *scripted) (*Task, *reports) {
	r := &reports{}
	task := New(Config{ID: ids.SubtaskID{Vertex: 1, Index: 2}, Wire: noWire{}, Report: r.add, CleanupTimeout: cleanupTimeout,
		New: func(h subtask.Host) (Subtask, error) { s.host = h; return s, nil }})
	task.Start()
	return task, r
}

func TestArrivalsReachTheSubtaskInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		task, reports := startTask(s)
		synctest.Wait()
		task.Receive(0, element.BarrierFrame(element.Barrier{Checkpoint: 1}))
		task.Receive(1, element.BarrierFrame(element.Barrier{Checkpoint: 2}))
		synctest.Wait()
		task.AddCredit(subtask.Output{Edge: 1, Channel: 2}, 5)
		synctest.Wait()
		task.Trigger(element.Barrier{Checkpoint: 3})
		task.NotifyComplete(2)
		task.NotifyAborted(3)
		task.AssignSplits(coordinator.SplitAssignment{})
		task.Finish()
		<-task.Done()
		want := "start, receive 0 barrier(1), receive 1 barrier(2), credit 1.2 5, trigger 3, complete 2, aborted 3, assign 0, end FINISHED, close"
		if have := strings.Join(s.calls, ", "); have != want {
			t.Errorf("calls are\n%s, want\n%s", have, want)
		}
		if status := reports.last(t).Status; status != coordinator.Finished {
			t.Errorf("status is %d", status)
		}
		owner := &freed{}
		task.Receive(0, element.Frame{Kind: element.Records, Data: []byte("late"), Owner: owner})
		if owner.times != 1 {
			t.Errorf("a late frame was freed %d times", owner.times)
		}
	})
}

type freed struct{ times int }

func (f *freed) Free() { f.times++ }

func TestMailInterruptsALongStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		stepping := make(chan struct{})
		s.onStep = func() subtask.Progress {
			close(stepping)
			for !s.pace.ShouldYield() {
				time.Sleep(time.Millisecond)
			}
			s.onStep = nil
			return subtask.More
		}
		task, _ := startTask(s)
		<-stepping
		task.Receive(0, element.CancelFrame(1)) // does not interrupt
		time.Sleep(time.Second)
		if s.pace.ShouldYield() {
			t.Error("a frame interrupted the step")
		}
		task.Trigger(element.Barrier{Checkpoint: 1})
		synctest.Wait()
		time.Sleep(time.Second)
		if s.pace.ShouldYield() {
			t.Error("the interruption goes on after the mail was read")
		}
		task.Finish()
		<-task.Done()
	})
}

// A barrier that overtakes interrupts a step. When the subtask has it, it goes on:
// no mail need come for that.
func TestUnalignedBarrierInterruptsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		stepping := make(chan struct{})
		steps := 0
		s.onStep = func() subtask.Progress {
			if steps++; steps > 1 {
				return subtask.Idle
			}
			close(stepping)
			for !s.pace.ShouldYield() {
				time.Sleep(time.Millisecond)
			}
			return subtask.More
		}
		task, _ := startTask(s)
		<-stepping
		task.Receive(0, element.BarrierFrame(element.Barrier{Checkpoint: 1, Alignment: element.Unaligned}))
		time.Sleep(time.Second)
		synctest.Wait()
		if steps < 2 || s.pace.ShouldYield() {
			t.Errorf("after the barrier the subtask made %d steps, and is to yield: %t", steps-1, s.pace.ShouldYield())
		}
		task.Finish()
		<-task.Done()
	})
}

// TestTaskWakesItsSubtaskByTheClock: not a millisecond before the time
// (FLINK-9857), without anything arriving, and also while it waits for credit.
func TestTaskWakesItsSubtaskByTheClock(t *testing.T) {
	for name, waiting := range map[string]subtask.Progress{"idle": subtask.Idle, "blocked": subtask.Blocked} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := time.Now().Add(1500*time.Millisecond + time.Microsecond)
				s := &scripted{alarm: at.UnixMilli()}
				s.onStep = func() subtask.Progress { return waiting }
				task, _ := startTask(s)
				time.Sleep(time.Until(time.UnixMilli(at.UnixMilli())) - time.Nanosecond)
				task.Trigger(element.Barrier{Checkpoint: 1}) // a look at the clock a little too early
				synctest.Wait()
				time.Sleep(time.Minute)
				task.Finish()
				<-task.Done()
				if have := strings.Join(s.calls, ", "); have != "start, trigger 1, alarm 0, end FINISHED, close" {
					t.Errorf("calls are %s, want the alarm at its time, once", have)
				}
			})
		})
	}
}

func TestBlockedTaskWaitsForCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.onStep = func() subtask.Progress {
			if s.credit == 0 {
				return subtask.Blocked
			}
			return subtask.Idle
		}
		task, _ := startTask(s)
		time.Sleep(3 * time.Second)
		task.AddCredit(subtask.Output{}, 1)
		synctest.Wait()
		if have := task.Metrics().Backpressured; have != 3*time.Second {
			t.Errorf("backpressured for %s, want 3s", have)
		}
		task.Finish()
		<-task.Done()
	})
}

func TestPanicsFailTheTaskWithTheirStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := func() { panic(errors.New("boom in user code")) }
		for name, prepare := range map[string]func(s *scripted){
			"start": func(s *scripted) { s.onStart = boom },
			"step":  func(s *scripted) { s.onStep = func() subtask.Progress { boom(); return subtask.Idle } },
			"frame": func(s *scripted) { s.onFrame = func(int, element.Frame) { boom() } },
			"work": func(s *scripted) {
				s.onStart = func() {
					s.host.Go(subtask.Work{Lane: subtask.FetchLane, Name: "fetch", Run: func(context.Context) subtask.Done { boom(); return nil }})
				}
			},
			"end of work": func(s *scripted) {
				s.onStart = func() {
					s.host.Go(subtask.Work{Lane: subtask.FetchLane, Name: "fetch", Run: func(context.Context) subtask.Done { return boom }})
				}
			},
		} {
			s := &scripted{}
			prepare(s)
			task, reports := startTask(s)
			task.Receive(0, element.CancelFrame(1))
			<-task.Done()
			status := reports.last(t)
			if status.Status != coordinator.Failed || status.Failure.Kind != coordinator.UserFailure ||
				status.Failure.Message != "panic: boom in user code" || !strings.Contains(status.Failure.Stack, "TestPanicsFailTheTask") {
				t.Errorf("%s: reported %+v", name, status)
			}
			if s.calls[len(s.calls)-1] != "close" {
				t.Errorf("%s: the subtask was not closed: %v", name, s.calls)
			}
		}
	})
}

func TestPanicWhileMakingAndClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reports{}
		task := New(Config{Wire: noWire{}, Report: r.add, New: func(subtask.Host) (Subtask, error) { panic("made wrongly") }})
		task.Start()
		<-task.Done()
		if status := r.last(t); status.Status != coordinator.Failed || status.Failure.Message != "panic: made wrongly" {
			t.Errorf("reported %+v", status)
		}

		s := &scripted{onClose: func() error { panic("closed wrongly") }}
		task, r = startTask(s)
		task.Finish()
		<-task.Done()
		if status := r.last(t).Status; status != coordinator.Finished {
			t.Errorf("status is %d: closing comes after the end", status)
		}
		if err := task.Err(); err == nil || err.Error() != "panic: closed wrongly" {
			t.Errorf("error of closing is %v", err)
		}
	})
}

func TestGoexitIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, prepare := range map[string]func(s *scripted){
			"task": func(s *scripted) { s.onStep = func() subtask.Progress { runtime.Goexit(); return subtask.Idle } },
			"work": func(s *scripted) {
				s.onStart = func() {
					s.host.Go(subtask.Work{Lane: subtask.ListLane, Name: "list", Run: func(context.Context) subtask.Done { runtime.Goexit(); return nil }})
				}
			},
		} {
			s := &scripted{}
			prepare(s)
			task, reports := startTask(s)
			<-task.Done()
			if status := reports.last(t); status.Status != coordinator.Failed || !strings.Contains(status.Failure.Message, "Goexit") {
				t.Errorf("%s: reported %+v", name, status)
			}
			if calls := strings.Join(s.calls, ", "); !strings.Contains(calls, "end FAILED, close") {
				t.Errorf("%s: the subtask was not told before it was closed: %s", name, calls)
			}
		}
	})
}

func TestCancelEndsWorkAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		var cameBack bool
		s.onStart = func() {
			s.host.Go(subtask.Work{Lane: subtask.FetchLane, Name: "fetch", Run: func(ctx context.Context) subtask.Done {
				<-ctx.Done()
				time.Sleep(time.Second) // takes its time
				return func() { cameBack = true; s.call("fetched") }
			}})
		}
		task, reports := startTask(s)
		synctest.Wait()
		began := time.Now()
		task.Cancel(0)
		synctest.Wait()
		if reports.count() > 0 {
			t.Error("reported as cancelled while its work goes on")
		}
		<-task.Done()
		if !cameBack || time.Since(began) != time.Second {
			t.Errorf("the work came back: %t, after %s", cameBack, time.Since(began))
		}
		if have := strings.Join(s.calls, ", "); have != "start, end CANCELED, fetched, close" {
			t.Errorf("calls are %s", have)
		}
		if status := reports.last(t).Status; status != coordinator.Canceled {
			t.Errorf("status is %d", status)
		}
	})
}

// TestCleanUpOutlivesTheCancel: what a cancelled subtask still has to do has a
// context of its own, which ends in time for the task to end by itself.
func TestCleanUpOutlivesTheCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		var took time.Duration
		var kept ids.CheckpointID
		s.onCancel = func(keepUpTo ids.CheckpointID) {
			kept = keepUpTo
			s.host.Go(subtask.Work{Lane: subtask.CommitLane, Name: "abort", Cleanup: true, Run: func(ctx context.Context) subtask.Done {
				began := time.Now()
				<-ctx.Done()
				took = time.Since(began)
				return func() { s.end(subtask.StatusReport{Status: coordinator.Canceled}) }
			}})
		}
		task, reports := startTask(s)
		synctest.Wait()
		task.Cancel(3)
		<-task.Done()
		if kept != 3 {
			t.Errorf("the subtask was told to keep up to %d", kept)
		}
		if took != cleanupTimeout {
			t.Errorf("the clean-up was given %s, want %s", took, cleanupTimeout)
		}
		if status := reports.last(t).Status; status != coordinator.Canceled {
			t.Errorf("status is %d", status)
		}
	})
}

func TestFailureFromOutsideKeepsItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task, reports := startTask(&scripted{})
		lost := coordinator.Failure{Kind: coordinator.LostProcess, Message: "lost tm1"}
		task.Fail(lost)
		task.Fail(coordinator.Failure{Kind: coordinator.PermanentFailure, Message: "later"})
		<-task.Done()
		if have := reports.last(t).Failure; have != lost {
			t.Errorf("failure is %+v", have)
		}
		if n := reports.count(); n != 1 {
			t.Errorf("%d reports of the end", n)
		}
	})
}

func TestWorkOfOneLaneNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		wait := func(ctx context.Context) subtask.Done { <-ctx.Done(); return func() {} }
		s.onStart = func() {
			s.host.Go(subtask.Work{Lane: subtask.FetchLane, Name: "first", Run: wait})
			s.host.Go(subtask.Work{Lane: subtask.FetchLane, Name: "second", Run: wait})
		}
		task, reports := startTask(s)
		<-task.Done()
		if status := reports.last(t); !strings.Contains(status.Failure.Message, "one work per lane") {
			t.Errorf("reported %+v", status)
		}
	})
}
