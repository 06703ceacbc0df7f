package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Store is an object store in a bucket, below a prefix.
type Store struct {
	client *Client
	bucket string
	prefix string // empty, or with a slash at the end
}

var _ objectstore.Store = (*Store)(nil)

// PutIf sends one conditional PutObject, once.
func (s *Store) PutIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	if err := objectstore.ValidateName(name); err != nil {
		return "", s.wrap("put-if", name, err)
	}
	options := putOptions()
	switch {
	case !cond.IsValid():
		return "", s.wrap("put-if", name, objectstore.ErrInvalidCondition)
	case cond.IsAbsent():
		options.SetMatchETagExcept("*")
	default:
		options.SetMatchETag(string(cond.ETag()))
	}
	var info minio.UploadInfo
	sent := false
	err := s.client.attempt(ctx, func(ctx context.Context) (err error) {
		sent = true
		info, err = s.putObject(ctx, name, content, options)
		return err
	})
	switch {
	case err == nil && info.ETag == "":
		return "", s.wrap("put-if", name, asUnknown(errors.New("the server gave no ETag")))
	case err == nil:
		return objectstore.ETag(info.ETag), nil
	case errors.Is(err, objectstore.ErrNotExist):
		// So servers refuse an If-Match on an object that does not exist.
		// It is said in words only: the class of this error is the other one.
		err = fmt.Errorf("%w: %s", objectstore.ErrPrecondition, err)
	case sent && mayHaveWritten(err):
		err = asUnknown(err)
	}
	return "", s.wrap("put-if", name, err)
}

// Read gets the whole object.
func (s *Store) Read(ctx context.Context, name string, sizeMax int64) ([]byte, objectstore.ETag, error) {
	if err := objectstore.ValidateName(name); err != nil {
		return nil, "", s.wrap("read", name, err)
	}
	var content []byte
	var etag objectstore.ETag
	_, err := s.client.retry(ctx, func(ctx context.Context) error {
		body, info, _, err := s.client.core.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		content, err = io.ReadAll(io.LimitReader(body, sizeMax+1))
		etag = objectstore.ETag(info.ETag)
		return err
	})
	switch {
	case err != nil:
		return nil, "", s.wrap("read", name, err)
	case int64(len(content)) > sizeMax:
		return nil, "", s.wrap("read", name, objectstore.ErrTooLarge)
	}
	return content, etag, nil
}

// listPageMax is the protocol's own limit.
const listPageMax = 1000

// List asks for one page at a time and goes on behind its last name.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		after := ""
		for {
			page, err := s.listPage(ctx, s.prefix+prefix, after)
			if err != nil {
				yield(objectstore.Object{}, s.wrap("list", prefix, err))
				return
			}
			for _, info := range page {
				after = info.Key
				name := strings.TrimPrefix(info.Key, s.prefix)
				if objectstore.ValidateName(name) != nil {
					continue
				}
				if !yield(objectstore.Object{Name: name, Size: info.Size}, nil) {
					return
				}
			}
			if len(page) < listPageMax {
				return
			}
		}
	}
}

// listPage returns up to listPageMax entries behind a name; fewer only at the
// end: where a server's pages are shorter it asks for several.
func (s *Store) listPage(ctx context.Context, prefix, after string) ([]minio.ObjectInfo, error) {
	var page []minio.ObjectInfo
	noOwner := false
	_, err := s.client.retry(ctx, func(ctx context.Context) error {
		page = page[:0]
		options := minio.ListObjectsOptions{
			Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: listPageMax, FetchOwner: &noOwner,
		}
		for info := range s.client.core.ListObjectsIter(ctx, s.bucket, options) {
			if info.Err != nil {
				return info.Err
			}
			if page = append(page, info); len(page) == listPageMax {
				break
			}
		}
		// The iteration just ends when its context does: that is not the end
		// of the listing.
		return ctx.Err()
	})
	return page, err
}

// Delete removes the object.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := objectstore.ValidateName(name); err != nil {
		return s.wrap("delete", name, err)
	}
	unknown, err := s.client.retry(ctx, func(ctx context.Context) error {
		return s.client.core.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
	})
	switch {
	case err == nil, errors.Is(err, objectstore.ErrNotExist):
		return nil
	case unknown:
		err = asUnknown(err)
	}
	return s.wrap("delete", name, err)
}

// DiscardStaged aborts multipart uploads that were never completed.
func (s *Store) DiscardStaged(ctx context.Context, prefix string, dead func(name string) bool) (int, error) {
	removed := 0
	keyMarker, uploadMarker := "", ""
	for {
		var page minio.ListMultipartUploadsResult
		_, err := s.client.retry(ctx, func(ctx context.Context) (err error) {
			page, err = s.client.core.ListMultipartUploads(ctx, s.bucket, s.prefix+prefix, keyMarker, uploadMarker, "", listPageMax)
			return err
		})
		if err != nil {
			return removed, s.wrap("discard-staged", prefix, err)
		}
		for _, upload := range page.Uploads {
			name, ours := strings.CutPrefix(upload.Key, s.prefix)
			if !ours || objectstore.ValidateName(name) != nil || !dead(name) {
				continue
			}
			if err := s.abortUpload(ctx, name, upload.UploadID); err != nil {
				return removed, s.wrap("discard-staged", name, err)
			}
			removed++
		}
		next, nextUpload := page.NextKeyMarker, page.NextUploadIDMarker
		if !page.IsTruncated || next == keyMarker && nextUpload == uploadMarker {
			return removed, nil
		}
		keyMarker, uploadMarker = next, nextUpload
	}
}

func (s *Store) abortUpload(ctx context.Context, name, uploadID string) error {
	_, err := s.client.retry(ctx, func(ctx context.Context) error {
		return s.client.core.AbortMultipartUpload(ctx, s.bucket, s.prefix+name, uploadID)
	})
	if hasCode(err, codeNoSuchUpload) {
		return nil
	}
	return err
}

// checkObject begins the name of the object that Check writes and removes. It
// begins with a dot, so no listing shows it; the rest is random, so that two
// checks do not meet.
const checkObject = ".weir-check-"

// Check lists, writes, writes conditionally and deletes in the bucket, one
// attempt each: whoever asks waits for the answer.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx, s.prefix+checkObject+rand.Text()); err != nil {
		return s.wrap("check", "", s.explain(err))
	}
	return nil
}

func (s *Store) check(ctx context.Context, key string) error {
	err := s.client.attempt(ctx, func(ctx context.Context) error {
		for info := range s.client.core.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: key, MaxKeys: 1}) {
			return info.Err
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	put := func(options minio.PutObjectOptions) error {
		return s.client.attempt(ctx, func(ctx context.Context) error {
			_, err := s.putObjectKey(ctx, key, []byte("check"), options)
			return err
		})
	}
	if err := put(putOptions()); err != nil {
		return err
	}
	ifAbsent := putOptions()
	ifAbsent.SetMatchETagExcept("*")
	conditionErr := put(ifAbsent)
	err = s.client.attempt(ctx, func(ctx context.Context) error {
		return s.client.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	})
	switch {
	case conditionErr == nil:
		return errNoConditions
	case !errors.Is(conditionErr, objectstore.ErrPrecondition):
		return conditionErr
	}
	return err
}

// errNoConditions says that the server cannot fence: a PutObject with
// If-None-Match replaced an object.
var errNoConditions = errors.New("the server ignores conditions of writes (If-None-Match), without which job records are not safe")

// explain says in a user's words what is wrong, with bucket and endpoint.
func (s *Store) explain(err error) error {
	where := fmt.Sprintf("bucket %q at s3.endpoint %s", s.bucket, s.client.endpoint)
	switch {
	case errors.Is(err, objectstore.ErrNoBucket):
		return fmt.Errorf("%s: the bucket does not exist, create it first: %w", where, err)
	case hasCode(err, codeUnknownKey), hasCode(err, codeUnknownKeyVersity):
		return fmt.Errorf("%s: the server does not know s3.access-key %q: %w", where, s.client.options.AccessKey, err)
	case hasCode(err, "SignatureDoesNotMatch"):
		return fmt.Errorf("%s: s3.secret-key is wrong: %w", where, err)
	case errors.Is(err, objectstore.ErrDenied):
		return fmt.Errorf("%s: s3.access-key %q may not list, write and delete there: %w", where, s.client.options.AccessKey, err)
	case errors.Is(err, objectstore.ErrUnavailable):
		return fmt.Errorf("%s: the endpoint cannot be reached or does not serve: %w", where, err)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// URI is s3://bucket/prefix/name.
func (s *Store) URI(name string) string {
	return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix+name, "/")
}

func (s *Store) wrap(op, name string, err error) error {
	return &objectstore.Error{Op: op, URI: s.URI(name), Err: err}
}

func (s *Store) putObject(ctx context.Context, name string, content []byte, options minio.PutObjectOptions) (minio.UploadInfo, error) {
	return s.putObjectKey(ctx, s.prefix+name, content, options)
}

func (s *Store) putObjectKey(ctx context.Context, key string, content []byte, options minio.PutObjectOptions) (minio.UploadInfo, error) {
	return s.client.core.PutObject(ctx, s.bucket, key, bytes.NewReader(content), int64(len(content)), "", sha256Hex(content), options)
}
