package localcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// command is a process to start.
type command struct {
	name, path string
	args       []string
	// environment is added to this process's own, as KEY=VALUE.
	environment []string
}

// spawn starts a process that outlives this one: in a session of its own,
// without a terminal, with its output in a file.
func spawn(dir, workingDirectory string, c command) (started identity, err error) {
	logName := logFile(dir, c.name)
	log, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return identity{}, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = workingDirectory
	cmd.Env = append(os.Environ(), c.environment...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return identity{}, fmt.Errorf("start %s: %w", c.name, err)
	}
	pid := cmd.Process.Pid
	// Nobody waits for it here, so it is a zombie if it ends before this process
	// does: its start time can be read in any case.
	info, ok, err := lookUpProcess(pid)
	if err == nil && !ok {
		err = errors.New("it has ended at once")
	}
	if err != nil {
		return identity{}, fmt.Errorf("start %s: %w", c.name, err)
	}
	return identity{PID: pid, Started: info.started}, nil
}

func logFile(dir, name string) string { return filepath.Join(dir, "log", name+".log") }

const (
	// tailBytes is enough for the last lines of a log.
	tailBytes = 4096
	tailLines = 10
)

// tail returns the last lines of a log, to be shown with an error.
func tail(name string) string {
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // only read
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, err = file.Seek(max(0, size-tailBytes), io.SeekStart)
		if err != nil {
			return ""
		}
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
