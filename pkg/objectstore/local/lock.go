package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirstream/weir/pkg/objectstore"
)

const lockFileName = ".lock"

// Locks are held for a compare and a rename, so waiting long means that their
// holder is stopped or its file system hangs. They are polled: a blocking
// flock could not be given up when the context ends.
const (
	lockPollMin = time.Millisecond
	lockPollMax = 20 * time.Millisecond
	// lockTimeout is when waiting is reported as an error instead.
	lockTimeout = 10 * time.Second
)

// directoryLock excludes other swaps in one directory, of this process and of
// others. The kernel releases it when its process dies.
type directoryLock struct {
	file *os.File
}

// lockDirectory waits for the lock of a directory, which exists.
func lockDirectory(ctx context.Context, dir string) (*directoryLock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout,
		fmt.Errorf("%w: lock of %s was held for %v by another process", objectstore.ErrUnavailable, dir, lockTimeout))
	defer cancel()
	for pause := lockPollMin; ; pause = min(2*pause, lockPollMax) {
		lock, err := tryLockDirectory(dir)
		if lock != nil || err != nil {
			return lock, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// tryLockDirectory returns nil and no error when another holds the lock.
func tryLockDirectory(dir string) (*directoryLock, error) {
	path := filepath.Join(dir, lockFileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, classify(err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		file.Close()
		return nil, nil
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// removeLockFile may have taken the name away between open and flock:
	// then the lock of a file without a name excludes nobody.
	opened, err1 := file.Stat()
	named, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(opened, named) {
		file.Close()
		return nil, nil
	}
	return &directoryLock{file: file}, nil
}

func (l *directoryLock) unlock() { l.file.Close() }

// removeLockFile removes the lock file of a directory that holds nothing else,
// while holding the lock. It reports whether it did.
func removeLockFile(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != lockFileName {
		return false
	}
	lock, err := tryLockDirectory(dir)
	if lock == nil || err != nil {
		return false
	}
	defer lock.unlock()
	return os.Remove(filepath.Join(dir, lockFileName)) == nil
}
