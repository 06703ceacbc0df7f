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

// linkNoReplace gives a file a second name, or its only new one where the file
// system has no links, and fails with fs.ErrExist rather than replace a file.
func linkNoReplace(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EMLINK) {
		if renameErr := renameNoReplace(from, to); !errors.Is(renameErr, errors.ErrUnsupported) {
			return renameErr
		}
	}
	return err
}
