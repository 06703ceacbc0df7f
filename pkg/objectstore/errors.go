package objectstore

import (
	"errors"
	"fmt"
)

// The classes of errors that callers branch on. Anything else is an error of
// the environment with no special meaning.
var (
	// ErrNotExist says that the store answered that there is no such object.
	// No other failure is ever reported as this one (I9).
	ErrNotExist = errors.New("object does not exist")
	// ErrPrecondition says that the condition of a PutIf did not hold. A PutIf
	// with IfMatch of an object that does not exist fails with it too.
	ErrPrecondition = errors.New("precondition failed")
	// ErrUnknownOutcome says that a write may or may not have taken effect, or
	// may still do so (I10).
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrDenied says that the credentials are wrong or lack the permission.
	ErrDenied = errors.New("access denied")
	// ErrNoBucket says that the bucket of an S3 store does not exist.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrUnavailable says that the store did not answer, or answered that it
	// cannot serve now. It may pass.
	ErrUnavailable = errors.New("store unavailable")
	// ErrTooLarge says that an object is larger than the reader allows.
	ErrTooLarge = errors.New("object too large")
	// ErrInvalidCondition says that a PutIf was given the zero Condition.
	ErrInvalidCondition = errors.New("condition is not valid")
)

// Error adds to an error of a store what was tried on which object.
type Error struct {
	Op  string // "put", "read", …
	URI string
	Err error
}

// Error prints operation, object and cause.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.URI, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
