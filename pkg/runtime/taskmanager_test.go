package runtime

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// uplink is a session whose other end is the test.
type uplink struct {
	reports  chan *pb.TaskManagerReport
	commands chan *pb.TaskManagerCommand
	once     sync.Once
	closed   chan struct{}
}

// uplinkQueueMax is more than any test sends.
const uplinkQueueMax = 10000

func newUplink() *uplink {
	return &uplink{
		reports: make(chan *pb.TaskManagerReport, uplinkQueueMax), commands: make(chan *pb.TaskManagerCommand, uplinkQueueMax),
		closed: make(chan struct{}),
	}
}

func (u *uplink) Send(m *pb.TaskManagerReport) error {
	select {
	case <-u.closed:
		return errors.New("closed")
	case u.reports <- m:
		return nil
	}
}

// SendAhead overtakes nothing here: what is sent is there at once.
func (u *uplink) SendAhead(m *pb.TaskManagerReport) error { return u.Send(m) }

func (u *uplink) Recv() (*pb.TaskManagerCommand, error) {
	select {
	case m := <-u.commands:
		return m, nil
	case <-u.closed:
		return nil, io.EOF
	}
}

func (u *uplink) Close() { u.once.Do(func() { close(u.closed) }) }

// answer plays the JobManager until the session ends: it accepts, and answers
// heartbeats while answering says so.
func (u *uplink) answer(answering func() bool, others chan<- *pb.TaskManagerReport) {
	for {
		select {
		case m := <-u.reports:
			switch kind := m.GetKind().(type) {
			case *pb.TaskManagerReport_Hello:
				u.commands <- &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Accepted{
					Accepted: &pb.HelloAccepted{HeartbeatIntervalMs: 1000, HeartbeatTimeoutMs: 5000},
				}}
				others <- m
			case *pb.TaskManagerReport_Heartbeat:
				if answering() {
					u.commands <- &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Heartbeat{Heartbeat: kind.Heartbeat}}
				}
			default:
				others <- m
			}
		case <-u.closed:
			return
		}
	}
}

// fakeLauncher starts executors that do nothing until they are ended.
type fakeLauncher struct {
	mu    sync.Mutex
	specs []LaunchSpec
	err   error
}

func (l *fakeLauncher) Start(_ context.Context, spec LaunchSpec) (Execution, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.specs = append(l.specs, spec)
	if l.err != nil {
		return nil, l.err
	}
	return &fakeExecution{ended: make(chan struct{})}, nil
}

func (l *fakeLauncher) Close() error { return nil }

type fakeExecution struct {
	once  sync.Once
	ended chan struct{}
	exit  Exit
}

func (e *fakeExecution) PID() int   { return 4711 }
func (e *fakeExecution) Wait() Exit { <-e.ended; return e.exit }
func (e *fakeExecution) End() {
	e.once.Do(func() { close(e.ended) })
}
func (e *fakeExecution) Kill() {
	e.once.Do(func() {
		e.exit = Exit{Code: -1, Signal: "killed"}
		close(e.ended)
	})
}

// bench is a TaskManager whose JobManager is the test.
type bench struct {
	*TaskManager
	launcher *fakeLauncher
	dir      string
	uplinks  chan *uplink // one for each session that is opened
	stop     func() error
}

func newBench(t *testing.T, connect func() (*uplink, error), overrides ...string) *bench {
	t.Helper()
	c, err := config.Load("", append([]string{"taskmanager.numberOfTaskSlots=4", "taskmanager.memory.process.size=4 gb"}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{launcher: &fakeLauncher{}, dir: t.TempDir(), uplinks: make(chan *uplink, 100)}
	if err := os.MkdirAll(filepath.Join(b.dir, "executors", "dead"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.TaskManager, err = New(Options{
		Config: c, ID: "tm", Host: "host", WorkDir: b.dir, Launcher: b.launcher, Log: zap.NewNop(), JobManager: "jm:1",
		Connect: func(context.Context) (transport.TaskManagerUplink, error) {
			u, err := connect()
			if err != nil {
				return nil, err
			}
			b.uplinks <- u
			return u, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.stop = func() error {
		cancel()
		return <-done
	}
	return b
}

func always(u *uplink) func() (*uplink, error) { return func() (*uplink, error) { return u, nil } }

func launchCommand() *pb.TaskManagerCommand {
	return &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_LaunchExecutor{LaunchExecutor: &pb.LaunchExecutor{
		Executor: &pb.ExecutorRef{JobId: "job", Attempt: &pb.AttemptID{Token: 1, Number: 2}}, Slots: 2, JobName: "name",
		Config: map[string]string{"taskmanager.bind-host": "0.0.0.0", "parallelism.default": "3"},
	}}}
}

func exits(reports []*pb.TaskManagerReport) []*pb.ExecutorExited {
	var all []*pb.ExecutorExited
	for _, r := range reports {
		if exit := r.GetExecutorExited(); exit != nil {
			all = append(all, exit)
		}
	}
	return all
}

func drainReports(others chan *pb.TaskManagerReport) []*pb.TaskManagerReport {
	var all []*pb.TaskManagerReport
	for {
		select {
		case m := <-others:
			all = append(all, m)
		default:
			return all
		}
	}
}

func TestExecutorIsLaunchedStoppedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink()
		b := newBench(t, always(u))
		others := make(chan *pb.TaskManagerReport, 100)
		go u.answer(func() bool { return true }, others)
		synctest.Wait()
		hello := drainReports(others)[0].GetHello()
		if hello.GetSlots() != 4 || hello.GetTaskManagerId() != "tm" || hello.GetWireVersion() != transport.WireVersion || len(hello.GetRunning()) != 0 {
			t.Errorf("hello: %v", hello)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "executors", "dead")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of a dead executor: %v", err)
		}
		u.commands <- launchCommand()
		synctest.Wait()
		if got := drainReports(others); len(got) != 1 || got[0].GetExecutorStarted().GetPid() != 4711 {
			t.Fatalf("reports: %v", got)
		}
		spec := b.launcher.specs[0]
		if spec.MemoryLimitBytes != 2<<30 || spec.Config["parallelism.default"] != "3" || spec.Config["taskmanager.bind-host"] != "" || spec.JobManager != "jm:1" {
			t.Errorf("spec: %+v", spec)
		}
		spec.Output("counts[3]> 17")
		spec.Output("something else")
		u.commands <- &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_StopExecutor{StopExecutor: &pb.StopExecutor{
			Executor: launchCommand().GetLaunchExecutor().GetExecutor(), Kill: true,
		}}}
		synctest.Wait()
		got := drainReports(others)
		if len(got) < 2 || len(exits(got)) != 1 || exits(got)[0].GetSignal() != "killed" || got[len(got)-1].GetExecutorExited() == nil {
			t.Fatalf("reports: %v", got)
		}
		var printed []string
		for _, r := range got {
			for _, line := range r.GetLogLines().GetLines() {
				printed = append(printed, line.GetSource()+"|"+line.GetText())
			}
		}
		if strings.Join(printed, " ") != "counts[3]|17 executor|something else" {
			t.Errorf("printed before the exit: %q", printed)
		}
		if _, err := os.Stat(spec.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the executor's directory: %v", err)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestCutOffTaskManagerKillsItsExecutorsBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink()
		b := newBench(t, always(u))
		others := make(chan *pb.TaskManagerReport, 100)
		var mu sync.Mutex
		silent := false
		go u.answer(func() bool { mu.Lock(); defer mu.Unlock(); return !silent }, others)
		synctest.Wait()
		u.commands <- launchCommand()
		time.Sleep(20*time.Second + time.Millisecond) // heartbeats go out at every second
		synctest.Wait()
		if got := exits(drainReports(others)); len(got) != 0 {
			t.Fatalf("killed while the JobManager answered: %v", got)
		}
		mu.Lock()
		silent = true
		mu.Unlock()
		// The last acknowledged one was sent a millisecond ago: 0.6 of 5 s from then.
		time.Sleep(3*time.Second - 2*time.Millisecond)
		synctest.Wait()
		if got := exits(drainReports(others)); len(got) != 0 {
			t.Fatalf("killed too early: %v", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := exits(drainReports(others)); len(got) != 1 || got[0].GetSignal() != "killed" {
			t.Errorf("exits when cut off: %v", got)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestBrokenSessionIsOpenedAgainAndSaysWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newUplink(), newUplink()
		sessions := []*uplink{first, nil, nil, second}
		b := newBench(t, func() (*uplink, error) {
			u := sessions[0]
			sessions = sessions[1:]
			if u == nil {
				return nil, errors.New("nobody listens")
			}
			return u, nil
		})
		others := make(chan *pb.TaskManagerReport, 100)
		go first.answer(func() bool { return true }, others)
		go second.answer(func() bool { return true }, others)
		synctest.Wait()
		first.commands <- launchCommand()
		synctest.Wait()
		if !b.IsRegistered() {
			t.Error("not registered")
		}
		drainReports(others)
		first.Close()
		synctest.Wait()
		if b.IsRegistered() {
			t.Error("registered without a session")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		hello := drainReports(others)[0].GetHello()
		if len(hello.GetRunning()) != 1 || hello.GetRunning()[0].GetJobId() != "job" {
			t.Errorf("second hello: %v", hello)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedTaskManagerEndsAndUnreachableOneGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink()
		u.commands <- &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Refused{Refused: &pb.HelloRefused{Reason: "wire version 1 and 2", Final: true}}}
		b := newBench(t, always(u))
		synctest.Wait()
		if err := b.stop(); err == nil || !strings.Contains(err.Error(), "wire version 1 and 2") {
			t.Errorf("refused: %v", err)
		}
		b = newBench(t, func() (*uplink, error) { return nil, errors.New("nobody listens") }, "taskmanager.registration.timeout=1 min")
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if err := b.stop(); err == nil || !strings.Contains(err.Error(), "not registered within 1 min") || !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("unreachable: %v", err)
		}
	})
}

func TestExecutorThatCannotBeStartedIsReportedWithItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink()
		b := newBench(t, always(u))
		b.launcher.err = errors.Join(errors.New("no loader"), ErrUnusable)
		others := make(chan *pb.TaskManagerReport, 100)
		go u.answer(func() bool { return true }, others)
		synctest.Wait()
		u.commands <- launchCommand()
		synctest.Wait()
		got := exits(drainReports(others))
		if len(got) != 1 || got[0].GetKind() != pb.FailureKind_FAILURE_KIND_PERMANENT || !strings.Contains(got[0].GetError(), "no loader") {
			t.Errorf("exits: %v", got)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestOutputIsBoundedAndCountsWhatItDrops(t *testing.T) {
	o := newJobOutput()
	line := strings.Repeat("x", 1000)
	const count = 10000
	for range count {
		o.add("job", line)
	}
	kept, dropped := 0, int64(0)
	for {
		messages, taken := o.take(outputBudgetBytes)
		for _, m := range messages {
			kept += len(m.GetLines())
			dropped += m.GetDropped()
		}
		if taken == 0 {
			break
		}
	}
	if most := outputBytesMax / 1000; kept > most || kept < most/2 || int64(kept)+dropped != count {
		t.Errorf("%d lines kept, %d dropped of %d", kept, dropped, count)
	}
}

func TestTailKeepsThePanicAndTheEnd(t *testing.T) {
	var short tail
	for _, line := range []string{"one", "panic: x", "", "goroutine 1 [running]:", "main.f()"} {
		short.add([]byte(line))
	}
	if got := short.String(); got != "one\npanic: x\n\ngoroutine 1 [running]:\nmain.f()\n" {
		t.Errorf("short: %q", got)
	}
	var long tail
	long.add([]byte("panic: x"))
	for range 10000 {
		long.add([]byte("a line of a dump of many goroutines"))
	}
	long.add([]byte("the end"))
	if got := long.String(); !strings.HasPrefix(got, "panic: x\n") || !strings.HasSuffix(got, "the end\n") || len(got) > 2*tailBytesMax+100 {
		t.Errorf("long: %d bytes, from %.40q", len(got), got)
	}
}

// TestKeptFilesGoWithTheirJob: they outlive an executor, and go when the
// JobManager says that the job has ended, but not before the executor.
func TestKeptFilesGoWithTheirJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink()
		b := newBench(t, always(u))
		others := make(chan *pb.TaskManagerReport, 100)
		go u.answer(func() bool { return true }, others)
		synctest.Wait()
		stop := &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_StopExecutor{StopExecutor: &pb.StopExecutor{
			Executor: launchCommand().GetLaunchExecutor().GetExecutor(), Kill: true,
		}}}
		forget := &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_ForgetJob{ForgetJob: &pb.ForgetJob{JobId: "job"}}}
		exists := func(dir string) bool {
			_, err := os.Stat(dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			return err == nil
		}
		u.commands <- launchCommand()
		synctest.Wait()
		dir := b.launcher.specs[0].LocalDir
		if b.launcher.specs[0].ExecutorSpec().LocalDir != dir {
			t.Errorf("the executor is told %q, want %q", b.launcher.specs[0].ExecutorSpec().LocalDir, dir)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		u.commands <- stop
		synctest.Wait()
		if !exists(dir) {
			t.Error("what was kept went with the executor")
		}
		u.commands <- launchCommand()
		synctest.Wait()
		if again := b.launcher.specs[1].LocalDir; again != dir {
			t.Errorf("the next executor has %s, the first had %s", again, dir)
		}
		u.commands <- forget
		synctest.Wait()
		if !exists(dir) {
			t.Error("what is kept was taken from a running executor")
		}
		u.commands <- stop
		synctest.Wait()
		if exists(dir) {
			t.Error("what was kept is still there")
		}
		// Of a job whose end nobody told, and on a host where nothing starts any more.
		u.commands <- launchCommand()
		synctest.Wait()
		u.commands <- stop
		synctest.Wait()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keptMax - time.Second)
		synctest.Wait()
		if !exists(dir) {
			t.Error("what was kept is gone too early")
		}
		time.Sleep(keptCheck + 2*time.Second)
		synctest.Wait()
		if exists(dir) {
			t.Error("what was kept of a job that never came back is still there")
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}
