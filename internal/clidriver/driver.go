package clidriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
)

// Driver runs one flinkctl binary against one cluster. Its methods may be
// called concurrently.
type Driver struct {
	// Binary is the path of flinkctl.
	Binary string
	// JobManager is the address that --jobmanager gets; empty leaves it out.
	JobManager string
	// Dir is the working directory; empty means this process's.
	Dir string
	// Progress receives what the commands print to stderr; nil drops it.
	Progress io.Writer
}

// ExitError is a command that did not exit with 0.
type ExitError struct {
	Args   []string
	Code   int
	Stdout string
	Stderr string
}

// Error shows the command and what it printed to stderr.
func (e *ExitError) Error() string {
	return fmt.Sprintf("flinkctl %s: exit code %d: %s", strings.Join(e.Args, " "), e.Code, strings.TrimSpace(e.Stderr))
}

// interruptGrace is how long an interrupted command may take to end: submit
// detaches and cluster start stops what it started.
const interruptGrace = 30 * time.Second

// Run runs flinkctl with the arguments and returns what it printed to stdout.
// When it exits with another code than 0 the error is an *ExitError. The end of
// the context interrupts it as Ctrl-C does.
func (d *Driver) Run(ctx context.Context, args ...string) (string, error) {
	var all []string
	if d.JobManager != "" {
		all = append(all, "--jobmanager", d.JobManager)
	}
	all = append(all, args...)
	cmd := exec.CommandContext(ctx, d.Binary, all...)
	cmd.Dir = d.Dir
	// Not in the terminal's process group: a Ctrl-C there reaches the caller, who decides.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptGrace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if d.Progress != nil {
		cmd.Stderr = io.MultiWriter(&stderr, d.Progress)
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return stdout.String(), &ExitError{Args: all, Code: exit.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("flinkctl %s: %w", strings.Join(all, " "), err)
	}
	return stdout.String(), nil
}

// Read runs flinkctl with -o json and reads what it printed into result.
func (d *Driver) Read(ctx context.Context, result any, args ...string) error {
	printed, err := d.Run(ctx, append([]string{"-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(printed), result); err != nil {
		return fmt.Errorf("flinkctl %s: printed no result: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Submit submits a job with --detached and returns its ID.
func (d *Driver) Submit(ctx context.Context, args ...string) (string, error) {
	printed, err := d.Run(ctx, append([]string{"submit", "--detached"}, args...)...)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(printed) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "job-id: "); ok {
			return id, nil
		}
	}
	return "", fmt.Errorf("flinkctl submit: printed no job ID: %q", printed)
}

// Status returns the status of a job.
func (d *Driver) Status(ctx context.Context, job string) (*cliresult.JobStatus, error) {
	status := &cliresult.JobStatus{}
	return status, d.Read(ctx, status, "status", job)
}

// TaskManagers returns the registered TaskManagers.
func (d *Driver) TaskManagers(ctx context.Context) (listed []cliresult.TaskManager, err error) {
	return listed, d.Read(ctx, &listed, "taskmanagers")
}

// pollInterval is how often a job is asked about.
const pollInterval = 100 * time.Millisecond

// AwaitJob asks for the status of a job until done is true, and fails when the
// job ends before that or the context does. A JobManager that is away for a
// while is waited for.
func (d *Driver) AwaitJob(ctx context.Context, job, what string, done func(*cliresult.JobStatus) (bool, error)) (*cliresult.JobStatus, error) {
	var last *cliresult.JobStatus
	err := Poll(ctx, what, func() (bool, error) {
		status, err := d.Status(ctx, job)
		var exit *ExitError
		if errors.As(err, &exit) && exit.Code == unreachableCode {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		last = status
		ok, err := done(status)
		if err == nil && !ok && status.IsTerminal() {
			err = fmt.Errorf("job %s is %s before %s: %s", job, status.Status, what, status.Cause)
		}
		return ok, err
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w (job is %s, %s)", err, last.Status, last.Detail)
	}
	return last, err
}

// unreachableCode is flinkctl's exit code for a JobManager that cannot be reached.
const unreachableCode = 3

// Poll calls done until it is true or fails. When the context ends before, the
// error says what was waited for.
func Poll(ctx context.Context, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
