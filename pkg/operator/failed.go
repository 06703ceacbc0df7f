package operator

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
)

// failedError says which operator's code returned an error.
type failedError struct {
	uid ids.OperatorUID
	err error
}

// Error implements error.
func (e *failedError) Error() string { return fmt.Sprintf("operator %s: %v", e.uid, e.err) }

// Unwrap gives what the operator's code returned.
func (e *failedError) Unwrap() error { return e.err }

// Failed names the operator whose code returned err. An error that comes back
// through a collector from an operator further down already has its name, and
// keeps it: chained operators would otherwise blame each other.
func Failed(uid ids.OperatorUID, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*failedError](err); ok {
		return err
	}
	return &failedError{uid: uid, err: err}
}
