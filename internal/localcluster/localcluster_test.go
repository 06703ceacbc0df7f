package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirstream/weir/pkg/config"
)

// The test binary stands in for the cluster's programs: it is linked under
// their names, listens where they would, and the TaskManager starts a child in
// the place of a task executor.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case jobManagerBinary, taskManagerBinary:
		standIn()
	case "executor":
		waitForSignal()
	default:
		os.Exit(m.Run())
	}
}

func waitForSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
}

// standIn is a program that serves its address and writes down that it does.
func standIn() {
	c, err := config.Load(os.Args[2], overridesOf(os.Args[3:]))
	if err == nil && os.Getenv("STAND_IN_FAILS") == filepath.Base(os.Args[0]) {
		err = errors.New("told to fail")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	port := fmt.Sprint(config.JobManagerRPCPort.Get(c))
	if name := config.TaskManagerResourceID.Get(c); name != "" {
		port = fmt.Sprint(config.TaskManagerRPCPort.Get(c))
		executor := exec.Command(filepath.Join(filepath.Dir(os.Args[0]), "executor"))
		if err := executor.Start(); err != nil {
			panic(err)
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	waitForSignal()
	_ = listener.Close()
}

func overridesOf(args []string) (overrides []string) {
	for i := 1; i < len(args); i += 2 {
		overrides = append(overrides, args[i])
	}
	return overrides
}

// fixture is a cluster of stand-ins that ends with its test.
func fixture(t *testing.T) Options {
	t.Helper()
	programs := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{jobManagerBinary, taskManagerBinary, "executor"} {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{
		Dir: filepath.Join(t.TempDir(), "c"), TaskManagers: new(int), Overrides: []string{"jobmanager.rpc.port=0"},
		Programs: programs, Progress: func(string) {},
	}
	*o.TaskManagers = 2
	// Every TaskManager that listens is registered.
	o.Registered = func(_ context.Context, address string) ([]int, error) {
		if !answers(address) {
			return nil, errors.New("nobody listens")
		}
		processes, err := Status(o.Dir)
		var pids []int
		for _, p := range processes {
			if p.Role == TaskManager && p.PID != 0 && answers(p.Address) {
				pids = append(pids, p.PID)
			}
		}
		return pids, err
	}
	t.Cleanup(func() {
		var absent *NotFoundError
		if _, err := Stop(context.Background(), o.Dir, func(string) {}); err != nil && !errors.As(err, &absent) {
			t.Error(err)
		}
	})
	return o
}

// answers connects: to listen there instead could take the address from the
// stand-in that is just starting.
func answers(address string) bool {
	connection, err := net.Dial("tcp", address)
	return err == nil && connection.Close() == nil
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	cluster, err := Start(context.Background(), o)
	var ended *EndedError
	if errors.As(err, &ended) {
		t.Fatalf("%v: %s", err, ended.Tail)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func recorded(t *testing.T, dir string) *record {
	t.Helper()
	r, err := readRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pids(processes []Process) (pids []int) {
	for _, p := range processes {
		pids = append(pids, p.PID)
	}
	return pids
}

func TestStartStatusStop(t *testing.T) {
	o := fixture(t)
	cluster := start(t, o)
	if want := []string{"jobmanager", "taskmanager-1", "taskmanager-2"}; !slices.Equal(cluster.Started, want) {
		t.Errorf("started %v, want %v", cluster.Started, want)
	}
	if slices.Contains(pids(cluster.Processes), 0) {
		t.Errorf("processes are %+v: some do not run", cluster.Processes)
	}
	taskManager := recorded(t, o.Dir).find("taskmanager-1").Identity
	if members, err := taskManager.membersOfSession(); err != nil || len(members) != 1 {
		t.Errorf("the TaskManager's session has %v, %v; want one executor", members, err)
	}

	stopped, err := Stop(context.Background(), o.Dir, o.Progress)
	if err != nil {
		t.Fatal(err)
	}
	if len(stopped) != 3 {
		t.Errorf("stopped %v, want three", stopped)
	}
	for _, p := range cluster.Processes {
		if _, ok, err := lookUpProcess(p.PID); ok && !isZombie(t, p.PID) || err != nil {
			t.Errorf("%s still runs, %v", p.Name, err)
		}
		if !isFreeAddress(p.Address) {
			t.Errorf("%s is still in use", p.Address)
		}
	}
	if members, err := taskManager.membersOfSession(); err != nil || len(members) != 0 {
		t.Errorf("executors %v still run, %v", members, err)
	}
	processes, err := Status(o.Dir)
	if err != nil || !slices.Equal(pids(processes), []int{0, 0, 0}) {
		t.Errorf("status is %+v, %v; want three stopped processes", processes, err)
	}
	if stopped, err = Stop(context.Background(), o.Dir, o.Progress); err != nil || len(stopped) != 0 {
		t.Errorf("stopping again stopped %v, %v", stopped, err)
	}
}

func isZombie(t *testing.T, pid int) bool {
	t.Helper()
	info, _, err := lookUpProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return info.isZombie
}

func TestStartAgainStartsWhatIsMissing(t *testing.T) {
	o := fixture(t)
	first := start(t, o)
	again := start(t, Options{Dir: o.Dir, Programs: o.Programs, Progress: o.Progress, Registered: o.Registered})
	if len(again.Started) != 0 || !slices.Equal(pids(first.Processes), pids(again.Processes)) {
		t.Errorf("a running cluster was changed: started %v", again.Started)
	}

	// The killed process is a zombie until this test, its parent, waits for it, which it never does.
	killed := recorded(t, o.Dir).find("jobmanager").Identity
	if err := unix.Kill(killed.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := awaitEnd(context.Background(), killed); err != nil {
		t.Fatal(err)
	}
	if !isZombie(t, killed.PID) {
		t.Fatal("the killed process is no zombie: the test shows nothing")
	}
	again = start(t, o)
	if !slices.Equal(again.Started, []string{"jobmanager"}) || again.JobManager != first.JobManager {
		t.Errorf("started %v at %s, want the JobManager at %s", again.Started, again.JobManager, first.JobManager)
	}

	three := 3
	o.TaskManagers = &three
	if again = start(t, o); !slices.Equal(again.Started, []string{"taskmanager-3"}) {
		t.Errorf("started %v, want one more TaskManager", again.Started)
	}
}

func TestRestartedTaskManagerDoesNotMeetItsOldExecutors(t *testing.T) {
	o := fixture(t)
	start(t, o)
	killed := recorded(t, o.Dir).find("taskmanager-2").Identity
	if err := unix.Kill(killed.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := awaitEnd(context.Background(), killed); err != nil {
		t.Fatal(err)
	}
	if again := start(t, o); !slices.Equal(again.Started, []string{"taskmanager-2"}) {
		t.Errorf("started %v", again.Started)
	}
	if members, err := killed.membersOfSession(); err != nil || len(members) != 0 {
		t.Errorf("executors %v of the killed TaskManager still run, %v", members, err)
	}
}

func TestRunningClusterRefusesOtherSettings(t *testing.T) {
	o := fixture(t)
	start(t, o)
	one, four, yes := 1, 4, true
	for name, change := range map[string]func(*Options){
		"fewer TaskManagers": func(o *Options) { o.TaskManagers = &one },
		"other slots":        func(o *Options) { o.Slots = &four },
		"an S3 server":       func(o *Options) { o.S3 = &yes },
		"another setting":    func(o *Options) { o.Overrides = []string{"heartbeat.interval=2s"} },
	} {
		changed := o
		change(&changed)
		var conflict *ConflictError
		if _, err := Start(context.Background(), changed); !errors.As(err, &conflict) {
			t.Errorf("%s: error is %v, want a conflict", name, err)
		}
	}
	if _, err := Stop(context.Background(), o.Dir, o.Progress); err != nil {
		t.Fatal(err)
	}
	o.TaskManagers, o.Slots = &one, &four
	if cluster := start(t, o); len(cluster.Processes) != 2 {
		t.Errorf("a stopped cluster did not take the new settings: %+v", cluster.Processes)
	}
}

func TestFailedStartLeavesNothingRunning(t *testing.T) {
	o := fixture(t)
	t.Setenv("STAND_IN_FAILS", taskManagerBinary)
	_, err := Start(context.Background(), o)
	var ended *EndedError
	if !errors.As(err, &ended) || !strings.Contains(ended.Tail, "told to fail") {
		t.Fatalf("error is %v, want the TaskManager's last words", err)
	}
	processes, err := Status(o.Dir)
	if err != nil || !slices.Equal(pids(processes), []int{0, 0, 0}) {
		t.Errorf("status is %+v, %v; want nothing running", processes, err)
	}
}

func TestWrongOptionsLeaveNoTrace(t *testing.T) {
	none, many := 0, 1<<20
	for name, change := range map[string]func(*Options){
		"no TaskManager":  func(o *Options) { o.TaskManagers = &none },
		"too many slots":  func(o *Options) { o.Slots = &many },
		"unknown key":     func(o *Options) { o.Overrides = []string{"heartbeat.intervall=1s"} },
		"missing program": func(o *Options) { o.Programs = o.Dir },
		"missing S3 server": func(o *Options) {
			s3 := true
			o.S3, o.S3Server = &s3, func() (string, error) { return "", &OptionError{Message: "not installed"} }
		},
	} {
		o := fixture(t)
		change(&o)
		if _, err := Start(context.Background(), o); err == nil {
			t.Errorf("%s: started", name)
		}
		var absent *NotFoundError
		if _, err := Status(o.Dir); !errors.As(err, &absent) {
			t.Errorf("%s: there is a cluster afterwards: %v", name, err)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its directory is there afterwards: %v", name, err)
		}
	}
}

func TestTwoStartsAtOnceStartOneCluster(t *testing.T) {
	o := fixture(t)
	results := make(chan []string, 2)
	for range 2 {
		go func() {
			cluster, err := Start(context.Background(), o)
			if err != nil {
				t.Error(err)
				results <- nil
				return
			}
			results <- cluster.Started
		}()
	}
	if first, second := <-results, <-results; len(first)+len(second) != 3 {
		t.Errorf("started %v and %v, want three processes together", first, second)
	}
}

func TestAnotherProcessWithThePIDIsNotTakenForOurs(t *testing.T) {
	info, ok, err := lookUpProcess(os.Getpid())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for started, want := range map[string]bool{info.started: true, info.started + "0": false} {
		alive, err := identity{PID: os.Getpid(), Started: started}.isAlive()
		if err != nil || alive != want {
			t.Errorf("alive is %v, %v; want %v", alive, err, want)
		}
	}
}

func TestSecretsAreReadableByTheirOwnerOnly(t *testing.T) {
	o := fixture(t)
	o.Overrides = append(o.Overrides, "s3.secret-key=hush")
	start(t, o)
	for _, name := range []string{recordFile, configFile} {
		info, err := os.Stat(filepath.Join(o.Dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	for _, p := range recorded(t, o.Dir).Processes {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Identity.PID))
		if err != nil || strings.Contains(string(line), "hush") {
			t.Errorf("the command line of %s is %q, %v", p.Name, line, err)
		}
	}
}

func TestRecordOfAnotherFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	content, err := json.Marshal(record{Version: recordVersion + 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Status(dir); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("error is %v", err)
	}
}

func TestLockWaitsNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(context.Background(), dir, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*pollInterval)
	defer cancel()
	said := 0
	if _, err := lock(ctx, dir, func(string) { said++ }); !errors.Is(err, context.DeadlineExceeded) || said != 1 {
		t.Errorf("error is %v after %d lines", err, said)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if unlock, err = lock(ctx, dir, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
