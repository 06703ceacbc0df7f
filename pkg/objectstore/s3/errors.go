package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/weirstream/weir/pkg/objectstore"
)

const (
	// codeNoSuchUpload answers a request about a multipart upload that was
	// completed or aborted.
	codeNoSuchUpload = "NoSuchUpload"
	// An access key that the server does not know. Versitygw's answer has
	// status 404, and is no absence all the same.
	codeUnknownKey        = "InvalidAccessKeyId"
	codeUnknownKeyVersity = "XAdminUserNotFound"
	// Versitygw's answer when a directory that it is about to write into is
	// removed with its last object at the same moment. Trying again helps.
	codeDirectoryRace = "ExistingObjectIsDirectory"
)

// classify gives an error of the client one of the classes of package
// objectstore, if it has one. ctx is the caller's, not the attempt's: when it
// has not ended, an ended context means that the attempt took too long.
func (c *Client) classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	var response minio.ErrorResponse
	if !errors.As(err, &response) {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w: no answer from %s within %v", objectstore.ErrUnavailable, c.endpoint, c.options.AttemptTimeout)
		}
		return fmt.Errorf("%w: %s: %w", objectstore.ErrUnavailable, c.endpoint, err)
	}
	detail := fmt.Errorf("%s (%s, status %d)", response.Error(), response.Code, response.StatusCode)
	if class := classOf(response); class != nil {
		return fmt.Errorf("%w: %w", class, responseError{detail, response})
	}
	return responseError{detail, response}
}

// responseError prints what the server said and lets errors.As find it.
type responseError struct {
	error
	response minio.ErrorResponse
}

func (e responseError) Unwrap() error { return e.response }

func classOf(response minio.ErrorResponse) error {
	switch response.Code {
	case "NoSuchKey":
		return objectstore.ErrNotExist
	case "NoSuchBucket":
		return objectstore.ErrNoBucket
	case "PreconditionFailed", "ConditionalRequestConflict":
		return objectstore.ErrPrecondition
	case "AccessDenied", "SignatureDoesNotMatch", codeUnknownKey, codeUnknownKeyVersity:
		return objectstore.ErrDenied
	case "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "RequestLimitExceeded", codeDirectoryRace:
		return objectstore.ErrUnavailable
	}
	switch status := response.StatusCode; {
	case status == http.StatusPreconditionFailed:
		return objectstore.ErrPrecondition
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return objectstore.ErrDenied
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return objectstore.ErrUnavailable
	}
	return nil
}

func hasCode(err error, code string) bool {
	var response minio.ErrorResponse
	return errors.As(err, &response) && response.Code == code
}

// mayHaveWritten reports whether a write that failed with err may have taken
// effect all the same. It has not when the connection could not be made, or
// when the server refused with an answer of its own. Answers of class 5xx are
// no refusal: a proxy gives them too when it loses the server's reply.
func mayHaveWritten(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	var response minio.ErrorResponse
	if !errors.As(err, &response) {
		return true
	}
	return response.StatusCode < 400 || response.StatusCode >= 500 || response.StatusCode == http.StatusRequestTimeout
}

// asUnknown marks the error of a write whose outcome is unknown.
func asUnknown(err error) error {
	if err == nil || errors.Is(err, objectstore.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", objectstore.ErrUnknownOutcome, err)
}
