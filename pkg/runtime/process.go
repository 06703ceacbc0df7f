package runtime

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// inherited are the variables of the TaskManager that executors see beside
// those that the job declares: what any program needs to find its files, its
// clock's zone, its certificates and, where the configuration has none, the
// keys of its storage. Nothing else leaks into jobs.
var inherited = []string{
	"PATH", "HOME", "USER", "TMPDIR", "TZ", "ZONEINFO", "LANG", "LC_ALL",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"GOMAXPROCS", "GOTRACEBACK", "GODEBUG",
}

// specName is the file in an executor's directory that says what it is to do.
const specName = "executor.json"

// outputGrace bounds how long the end of an executor waits for its output to
// end: a grandchild may hold it open for ever.
const outputGrace = 2 * time.Second

// ProcessLauncher starts executors as processes.
type ProcessLauncher struct {
	environment []string
	log         *zap.Logger
	spawner     *spawner
	processes   sync.WaitGroup
}

var _ Launcher = (*ProcessLauncher)(nil)

// NewProcessLauncher makes a launcher. environment, KEY=VALUE each, tells a
// job's program to be an executor. Close ends it.
func NewProcessLauncher(environment []string, log *zap.Logger) *ProcessLauncher {
	return &ProcessLauncher{environment: environment, log: log, spawner: newSpawner()}
}

// Close waits for the processes, and ends the spawner's thread.
func (l *ProcessLauncher) Close() error {
	l.processes.Wait()
	l.spawner.close()
	return nil
}

// Start starts the job's binary in executor mode.
func (l *ProcessLauncher) Start(ctx context.Context, spec LaunchSpec) (execution Execution, err error) {
	described := spec.ExecutorSpec()
	described.HasLifeline = true
	specFile := filepath.Join(spec.Dir, specName)
	if err := executor.WriteSpec(specFile, described); err != nil {
		return nil, err
	}
	lifeline, keep, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start executor: %w", err)
	}
	// The executor has its own copy of the read end, or never will.
	defer func() { err = errors.Join(err, lifeline.Close()) }()
	p := &process{keep: keep, output: spec.Output}
	cmd, err := l.startCommand(ctx, spec, specFile, lifeline, p)
	if err != nil {
		return nil, errors.Join(err, p.abandon())
	}
	p.cmd = cmd
	preferForOOM(cmd.Process.Pid)
	l.log.Info("executor started", logfield.Executor(spec.Executor), logfield.PID(cmd.Process.Pid))
	p.exited = make(chan struct{})
	l.processes.Go(p.wait)
	return p, nil
}

// textBusyTriesMax bounds how often a binary that was just written is tried
// again while a process that was forked meanwhile still holds it open for
// writing (it closes it a moment later, when it executes).
const textBusyTriesMax = 20

func (l *ProcessLauncher) startCommand(ctx context.Context, spec LaunchSpec, specFile string, lifeline *os.File, p *process) (*exec.Cmd, error) {
	for try := 1; ; try++ {
		cmd := exec.Command(spec.Binary, spec.Args...)
		// It stays in the TaskManager's directory: a relative output path must
		// not lie in one that is removed with the executor.
		cmd.Env = append(environmentOf(spec), append(l.environment, executor.SpecVariable+"="+specFile)...)
		cmd.ExtraFiles = []*os.File{lifeline} // executor.LifelineFD
		cmd.SysProcAttr = executorAttributes()
		if err := p.connect(cmd); err != nil {
			return nil, fmt.Errorf("start executor: %w", err)
		}
		err := l.spawner.start(cmd)
		// The child has them, or nobody.
		closeErr := p.closeWriteEnds()
		if err == nil {
			return cmd, closeErr
		}
		if !errors.Is(err, syscall.ETXTBSY) || try >= textBusyTriesMax {
			return nil, explainStart(spec.Binary, err)
		}
		if err := p.closeReadEnds(); err != nil {
			return nil, fmt.Errorf("start executor: %w", err)
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("start executor: %w", ctx.Err())
		}
	}
}

// environmentOf is what the executor sees: later entries win.
func environmentOf(spec LaunchSpec) []string {
	var environment []string
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			environment = append(environment, name+"="+value)
		}
	}
	if spec.MemoryLimitBytes > 0 {
		environment = append(environment, "GOMEMLIMIT="+strconv.FormatInt(spec.MemoryLimitBytes, 10))
	}
	names := make([]string, 0, len(spec.Environment))
	for name := range spec.Environment {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		environment = append(environment, name+"="+spec.Environment[name])
	}
	return environment
}

// explainStart says what hinders a binary from being executed, in words that
// name the cure. What will be the same at every try is ErrUnusable.
func explainStart(binary string, err error) error {
	platform := goruntime.GOOS + "/" + goruntime.GOARCH
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("the job's binary is not one for %s (%w): %w", platform, err, ErrUnusable)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s may not be executed (%w): is the directory on a mount that forbids it (noexec)? set blob.storage.directory to one that allows execution: %w",
			filepath.Dir(binary), err, ErrUnusable)
	case errors.Is(err, os.ErrNotExist):
		if interpreter := interpreterOf(binary); interpreter != "" {
			return fmt.Errorf("the job's binary is dynamically linked and this host has no loader %s (%w): build it with CGO_ENABLED=0: %w", interpreter, err, ErrUnusable)
		}
	}
	return fmt.Errorf("start executor: %w", err)
}

// interpreterOf is the loader that an ELF binary asks for, empty for static ones.
func interpreterOf(binary string) string {
	file, err := elf.Open(binary)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // only read
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(segment.Open(), 4096))
		if err != nil {
			return ""
		}
		for len(name) > 0 && name[len(name)-1] == 0 {
			name = name[:len(name)-1]
		}
		return string(name)
	}
	return ""
}

// process is one executor's process.
type process struct {
	cmd *exec.Cmd
	// keep is the lifeline's write end: the executor exits when it is closed,
	// by us or because we died.
	keep     *os.File
	keepOnce sync.Once
	output   func(line string)

	readEnds, writeEnds [2]*os.File // stdout, stderr
	tail                tail        // the stderr reader's, until it has ended

	exited chan struct{}
	exit   Exit // set before exited is closed
	mu     struct {
		sync.Mutex
		ended bool // the PID may belong to somebody else
	}
}

var _ Execution = (*process)(nil)

// connect makes the pipes of the output.
func (p *process) connect(cmd *exec.Cmd) error {
	for i := range p.readEnds {
		var err error
		if p.readEnds[i], p.writeEnds[i], err = os.Pipe(); err != nil {
			return err
		}
	}
	cmd.Stdout, cmd.Stderr = p.writeEnds[0], p.writeEnds[1]
	return nil
}

func closeFiles(files *[2]*os.File) error {
	var errs []error
	for i, file := range files {
		if file != nil {
			errs = append(errs, file.Close())
			files[i] = nil
		}
	}
	return errors.Join(errs...)
}

func (p *process) closeWriteEnds() error { return closeFiles(&p.writeEnds) }
func (p *process) closeReadEnds() error  { return closeFiles(&p.readEnds) }

// abandon frees what a process that was not started would have used.
func (p *process) abandon() error {
	return errors.Join(p.keep.Close(), p.closeReadEnds(), p.closeWriteEnds())
}

// PID implements Execution.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Wait implements Execution.
func (p *process) Wait() Exit {
	<-p.exited
	return p.exit
}

// End closes the lifeline.
func (p *process) End() {
	// Nothing was written to it: closing it cannot lose anything.
	p.keepOnce.Do(func() { _ = p.keep.Close() })
}

// Kill kills the process with its group.
func (p *process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.ended {
		// It can only fail because nobody is left in the group.
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// wait reads the output and waits for the end.
func (p *process) wait() {
	defer close(p.exited)
	var readers sync.WaitGroup
	readers.Go(func() { p.read(p.readEnds[0], func([]byte) {}) })
	readers.Go(func() { p.read(p.readEnds[1], p.tail.add) })
	state, err := p.cmd.Process.Wait()
	p.mu.Lock()
	p.mu.ended = true
	// What it left running in its group would go on as nobody's. While there
	// is such a process, nobody else can have the group's number.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.mu.Unlock()
	p.End()
	// Whoever left the group may hold the pipes for ever.
	stop := time.AfterFunc(outputGrace, func() {
		now := time.Now()
		_ = p.readEnds[0].SetReadDeadline(now)
		_ = p.readEnds[1].SetReadDeadline(now)
	})
	readers.Wait()
	stop.Stop()
	_ = p.closeReadEnds() // only read
	p.exit = exitOf(state, err)
	p.exit.StderrTail = p.tail.String()
}

func (p *process) read(from io.Reader, also func([]byte)) {
	// Its errors are the end of the output, however it came about.
	_ = readLines(from, func(line []byte) {
		also(line)
		p.output(string(line))
	})
}

func exitOf(state *os.ProcessState, err error) Exit {
	if err != nil {
		return Exit{Code: -1, Signal: "unknown: " + err.Error()}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal().String()}
	}
	return Exit{Code: state.ExitCode(), Kind: KindOfExitCode(state.ExitCode())}
}
