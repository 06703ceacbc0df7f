package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Open starts to get the object. When the body breaks off, the reader goes on
// behind what it has, of the same version of the object.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := objectstore.ValidateName(name); err != nil {
		return nil, s.wrap("open", name, err)
	}
	r := &reader{ctx: ctx, store: s, name: name}
	if err := r.open(); err != nil {
		return nil, s.wrap("open", name, err)
	}
	return r, nil
}

// reopensMax bounds how often a body that breaks off is asked for again
// without one byte of progress.
const reopensMax = 5

type reader struct {
	ctx     context.Context
	store   *Store
	name    string
	etag    string
	size    int64 // negative when the server did not say
	offset  int64
	body    io.ReadCloser
	cancel  context.CancelFunc // of the body's request
	reopens int
}

// open asks for the object from offset on. The time limit is for the answer's
// header; the body has one for each read.
func (r *reader) open() error {
	client := r.store.client
	_, err := client.retry(r.ctx, func(attemptCtx context.Context) error {
		var options minio.GetObjectOptions
		if r.offset > 0 {
			if err := options.SetRange(r.offset, 0); err != nil {
				return err
			}
			if err := options.SetMatchETag(r.etag); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithCancel(r.ctx)
		stop := context.AfterFunc(attemptCtx, cancel)
		body, info, _, err := client.core.GetObject(ctx, r.store.bucket, r.store.prefix+r.name, options)
		if !stop() && err == nil {
			body.Close()
			err = context.DeadlineExceeded
		}
		if err != nil {
			cancel()
			return err
		}
		if r.offset == 0 {
			r.etag, r.size = info.ETag, info.Size
		}
		r.body, r.cancel = body, cancel
		return nil
	})
	if r.offset > 0 && errors.Is(err, objectstore.ErrPrecondition) {
		return errObjectChanged
	}
	return err
}

var errObjectChanged = errors.New("object was replaced while it was read")

// Read reads from the body.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.body == nil {
			return 0, r.store.wrap("read", r.name, errors.New("reader is closed or has failed"))
		}
		n, err := r.readBody(p)
		r.offset += int64(n)
		if n > 0 {
			r.reopens = 0
		}
		switch {
		case n > 0 || err == nil:
			// An error, if there is one, comes again with the next Read.
			return n, nil
		case r.offset == r.size, r.size < 0 && err == io.EOF:
			return 0, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		r.closeBody()
		err = r.store.client.classify(r.ctx, err)
		if r.reopens++; r.reopens > reopensMax || !errors.Is(err, objectstore.ErrUnavailable) {
			return 0, r.store.wrap("read", r.name, fmt.Errorf("at byte %d of %d: %w", r.offset, r.size, err))
		}
		if err := r.open(); err != nil {
			return 0, r.store.wrap("read", r.name, fmt.Errorf("at byte %d of %d: %w", r.offset, r.size, err))
		}
	}
}

// readBody reads once, and breaks the request off when nothing comes.
func (r *reader) readBody(p []byte) (int, error) {
	stall := time.AfterFunc(r.store.client.options.AttemptTimeout, r.cancel)
	defer stall.Stop()
	return r.body.Read(p)
}

func (r *reader) closeBody() {
	r.body.Close()
	r.cancel()
	r.body = nil
}

// Close ends the request.
func (r *reader) Close() error {
	if r.body != nil {
		r.closeBody()
	}
	return nil
}
