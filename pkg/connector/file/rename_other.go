//go:build unix && !linux

package file

import "errors"

// renameNoReplace is not to be had here.
func renameNoReplace(_, _ string) error { return errors.ErrUnsupported }
