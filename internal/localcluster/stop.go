package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopGrace is what a process has to end in order before it is killed: more
	// than the TaskManager takes to end its executors.
	stopGrace = 15 * time.Second
	// killTimeout is behind which a killed process hangs in the system.
	killTimeout = 10 * time.Second
	// portsTimeout bounds the wait for the ports of processes that have ended.
	portsTimeout = 10 * time.Second
)

// Stop ends the cluster in dir and returns when all its processes, executors
// included, have ended and their ports are free. It returns the names of those
// that ran. The error is a *NotFoundError when there is no cluster.
func Stop(ctx context.Context, dir string, progress func(line string)) (stopped []string, err error) {
	absolute, _, err := openRecord(dir)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, absolute, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// Another command may have changed it before this one had the lock.
	r, err := readRecord(absolute)
	if err != nil {
		return nil, err
	}
	all := make([]*process, len(r.Processes))
	for i := range r.Processes {
		all[i] = &r.Processes[i]
		alive, err := all[i].Identity.isAlive()
		if err != nil {
			return nil, err
		}
		if alive {
			stopped = append(stopped, all[i].Name)
		}
	}
	return stopped, r.stop(ctx, absolute, all, progress)
}

// stop ends the processes and records that. The JobManager goes first, so that
// it does not take the loss of the others for a failure of its jobs, and the
// S3 server last, so that the others can write to it.
func (r *record) stop(ctx context.Context, dir string, processes []*process, progress func(string)) error {
	for _, role := range []Role{JobManager, TaskManager, S3} {
		var group []*process
		for _, p := range processes {
			if p.Role == role {
				group = append(group, p)
			}
		}
		if err := end(ctx, group, progress); err != nil {
			return err
		}
	}
	for _, p := range processes {
		p.Identity = identity{}
	}
	return r.write(dir)
}

// end terminates the processes of a group together, then kills what is left
// of them and their sessions.
func end(ctx context.Context, group []*process, progress func(string)) error {
	for _, p := range group {
		if err := send(p.Identity, unix.SIGTERM); err != nil {
			return fmt.Errorf("stop %s: %w", p.Name, err)
		}
	}
	for _, p := range group {
		graceful, cancel := context.WithTimeout(ctx, stopGrace)
		err := awaitEnd(graceful, p.Identity)
		late := graceful.Err() != nil && ctx.Err() == nil
		cancel()
		if late {
			progress(fmt.Sprintf("%s does not end, killing it", p.Name))
			err = send(p.Identity, unix.SIGKILL)
		}
		if err == nil {
			err = endSession(ctx, p.Identity)
		}
		if err == nil {
			err = awaitFree(ctx, p.Address)
		}
		if err != nil {
			return fmt.Errorf("stop %s: %w", p.Name, err)
		}
	}
	return nil
}

// send signals a process unless it has ended.
func send(i identity, signal unix.Signal) error {
	alive, err := i.isAlive()
	if err != nil || !alive {
		return err
	}
	if err := unix.Kill(i.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func awaitEnd(ctx context.Context, i identity) error {
	return poll(ctx, pollInterval, func() (bool, error) {
		alive, err := i.isAlive()
		return !alive, err
	})
}

// endSession kills what is left of the session that a process led, and returns
// when it is empty.
func endSession(ctx context.Context, i identity) error {
	if i.isZero() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("a killed process does not end"))
	defer cancel()
	return poll(ctx, pollInterval, func() (bool, error) {
		members, err := i.membersOfSession()
		if err != nil {
			return false, err
		}
		alive, err := i.isAlive()
		if err != nil {
			return false, err
		}
		if alive {
			members = append(members, i.PID)
		}
		for _, pid := range members {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return false, fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		return len(members) == 0, nil
	})
}

// awaitFree returns when a server could listen on the address again.
func awaitFree(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, portsTimeout, fmt.Errorf("%s stays in use", address))
	defer cancel()
	return poll(ctx, pollInterval, func() (bool, error) { return isFreeAddress(address), nil })
}
