package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is how often something is looked at that tells nobody when it
// changes: short for people, long for a processor.
const pollInterval = 20 * time.Millisecond

// lock waits until no other command changes the cluster in dir. The system
// drops the lock when this process ends, however it ends.
func lock(ctx context.Context, dir string, progress func(string)) (unlock func() error, err error) {
	name := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cluster: %w", err)
	}
	said := false
	err = poll(ctx, pollInterval, func() (bool, error) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			if !said {
				progress("waiting for another command that changes this cluster")
				said = true
			}
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}
	return file.Close, nil
}

// poll calls done until it is true or fails, or the context ends.
func poll(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
