//go:build unix

package file

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// checkWritable asks whether files can be made in a directory.
func checkWritable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}

// isHopeless reports whether an error of opening or making a file stays until
// somebody changes something. A full disk is not among them.
func isHopeless(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOTDIR)
}

// moveNoReplace gives a file another name, and fails with fs.ErrExist rather than
// replace a file. Where the file system can it does so at once: between two steps
// a process of another attempt might remove the one name that is left after the
// other was taken. Elsewhere both names are there for a moment.
func moveNoReplace(from, to string) error {
	err := renameNoReplace(from, to)
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	if err := os.Remove(from); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
