package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What callers branch on. An error that was made by Errorf with one of them
// matches it on both sides of the wire.
var (
	// ErrNotFound: no such job, artifact, …
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrRefused: the request does not fit the state of things, such as
	// cancelling a job that has ended.
	ErrRefused = errors.New("refused")
	// ErrStale: the caller belongs to an attempt or leadership that is over (I8).
	ErrStale = errors.New("stale")
	// ErrUnavailable: the peer cannot be reached or the connection broke.
	// Nothing is known about what it did (I10).
	ErrUnavailable = errors.New("unavailable")
	// ErrTooLarge: the message is larger than MessageBytesMax, or in a session
	// than SessionMessageBytesMax.
	ErrTooLarge = errors.New("too large")
)

// Error is an error with a text for people, and the sentinel of this package
// that it matches.
type Error struct {
	kind    error
	message string
}

// Errorf makes an error that reads as formatted and matches kind, which is
// one of the sentinels of this package.
func Errorf(kind error, format string, args ...any) error {
	return &Error{kind: kind, message: fmt.Sprintf(format, args...)}
}

// Error is the text, without the kind.
func (e *Error) Error() string { return e.message }

// Is matches the sentinel.
func (e *Error) Is(target error) bool { return target == e.kind }

// kinds are the codes that the sentinels travel as.
var kinds = []struct {
	kind error
	code codes.Code
}{
	{ErrNotFound, codes.NotFound},
	{ErrInvalid, codes.InvalidArgument},
	{ErrRefused, codes.FailedPrecondition},
	{ErrStale, codes.Aborted},
	{ErrUnavailable, codes.Unavailable},
	{ErrTooLarge, codes.ResourceExhausted},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// toStatus makes the error that a server's method returns to gRPC.
func toStatus(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return status.Error(k.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// fromStatus makes the error that a client sees. io.EOF, the end of a stream
// in order, stays what it is. peer names the other side.
func fromStatus(err error, peer peerName) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if st.Code() == codes.Unavailable {
		return &Error{kind: ErrUnavailable, message: peer.unreachable(st.Message())}
	}
	for _, k := range kinds {
		if st.Code() == k.code {
			return &Error{kind: k.kind, message: st.Message()}
		}
	}
	return errors.New(st.Message())
}

// peerName says whom a client talks to, for errors.
type peerName struct {
	role    string // "JobManager"
	address string
}

func (p peerName) unreachable(detail string) string {
	return fmt.Sprintf("cannot reach the %s at %s (%s)", p.role, p.address, cause(detail))
}

// cause shortens what gRPC says about a connection to what went wrong.
func cause(detail string) string {
	if _, rest, ok := strings.Cut(detail, `desc = "`); ok {
		detail = strings.TrimSuffix(rest, `"`)
	}
	if i := strings.LastIndex(detail, "dial tcp"); i >= 0 {
		detail = strings.TrimSuffix(detail[i:], `"`)
	}
	return detail
}
