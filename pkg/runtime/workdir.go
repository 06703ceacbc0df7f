package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockName is the file in a working directory that its process holds locked.
const lockName = ".lock"

// WorkDir is the working directory of a JobManager or TaskManager: files that
// the process may lose. One process uses it at a time.
type WorkDir struct {
	path string
	lock *os.File
	// temporary: nobody named the directory, so it goes with its process.
	temporary bool
}

// OpenWorkDir opens the directory that process.working-dir names. If that is
// empty it makes one below temporary (io.tmp.dirs, or the system's if empty),
// and removes those that earlier processes of the same role left there when
// they were killed.
func OpenWorkDir(configured, temporary, role string) (*WorkDir, error) {
	if configured != "" {
		path, err := filepath.Abs(configured)
		if err != nil {
			return nil, fmt.Errorf("open working directory: %w", err)
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("open working directory: %w", err)
		}
		lock, err := lockDir(path)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("working directory %s is used by another process: set process.working-dir to another one", path)
		}
		if err != nil {
			return nil, fmt.Errorf("open working directory: %w", err)
		}
		return &WorkDir{path: path, lock: lock}, nil
	}
	if temporary == "" {
		temporary = os.TempDir()
	}
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	prefix := "weir-" + role + "-"
	if err := removeDeadDirs(temporary, prefix); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(temporary, prefix)
	if err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	return &WorkDir{path: path, lock: lock, temporary: true}, nil
}

// lockDir locks a directory for the life of the process: the lock ends with it
// however it ends.
func lockDir(path string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// removeDeadDirs removes the directories that nobody holds locked. One that
// is just being made has no lock file yet and stays.
func removeDeadDirs(parent, prefix string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("look for old working directories: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, lockName)); err != nil {
			continue
		}
		lock, err := lockDir(path)
		if err != nil {
			continue // it lives, or is somebody else's
		}
		if err := errors.Join(os.RemoveAll(path), lock.Close()); err != nil {
			return fmt.Errorf("remove old working directory: %w", err)
		}
	}
	return nil
}

// Path is the directory's absolute path.
func (d *WorkDir) Path() string { return d.path }

// Close gives the directory back, and removes it if nobody named it.
func (d *WorkDir) Close() error {
	var err error
	if d.temporary {
		err = os.RemoveAll(d.path)
	}
	return errors.Join(err, d.lock.Close())
}
