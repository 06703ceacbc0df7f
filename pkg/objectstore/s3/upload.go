package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weirstream/weir/pkg/objectstore"
)

const (
	// partsMax is the protocol's limit.
	partsMax = 10_000
	// partsPerSize is after how many parts they double in size, so that a
	// stream is bounded by the protocol's 5 TiB and not by the first size.
	partsPerSize = 1_000
	// abortTimeout is how long a failed Put may take to remove its parts.
	// What it leaves is found by DiscardStaged.
	abortTimeout = 10 * time.Second
)

// Put collects a part, and sends it when it is full; a stream that ends
// before needs one PutObject.
func (s *Store) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := objectstore.ValidateName(name); err != nil {
		return s.wrap("put", name, err)
	}
	if err := ctx.Err(); err != nil {
		return s.wrap("put", name, err)
	}
	u := &upload{ctx: ctx, store: s, name: name, partSize: s.client.options.PartSize}
	err := write(u)
	if err == nil {
		err = u.finish()
	}
	if err != nil {
		u.abort()
		return s.wrap("put", name, err)
	}
	return nil
}

// upload is the writer that a Put gives to its caller.
type upload struct {
	ctx      context.Context
	store    *Store
	name     string
	partSize int
	part     bytes.Buffer
	size     int64
	// uploadID is empty while no part was sent.
	uploadID string
	parts    []minio.CompletePart
	err      error // of an earlier Write: the upload is broken
}

// Write adds to the current part.
func (u *upload) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && u.err == nil {
		// A full part is sent when more comes, so that the last is never empty.
		if u.part.Len() == u.partSize {
			if u.err = u.sendPart(); u.err != nil {
				break
			}
		}
		n := min(len(p), u.partSize-u.part.Len())
		u.part.Write(p[:n])
		u.size += int64(n)
		written += n
		p = p[n:]
	}
	return written, u.err
}

func (u *upload) sendPart() error {
	client, key := u.store.client, u.store.prefix+u.name
	if u.uploadID == "" {
		_, err := client.retry(u.ctx, func(ctx context.Context) (err error) {
			u.uploadID, err = client.core.NewMultipartUpload(ctx, u.store.bucket, key, putOptions())
			return err
		})
		if err != nil {
			return err
		}
	}
	number := len(u.parts) + 1
	if number > partsMax {
		return fmt.Errorf("object has more than %d parts", partsMax)
	}
	var part minio.ObjectPart
	content := u.part.Bytes()
	sum := sha256Hex(content)
	_, err := client.retry(u.ctx, func(ctx context.Context) (err error) {
		part, err = client.core.PutObjectPart(ctx, u.store.bucket, key, u.uploadID, number,
			bytes.NewReader(content), int64(len(content)), minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
		return err
	})
	if err != nil {
		return fmt.Errorf("part %d: %w", number, err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	u.part.Reset()
	if len(u.parts)%partsPerSize == 0 {
		u.partSize *= 2
	}
	return nil
}

// finish makes the object visible.
func (u *upload) finish() error {
	if u.err != nil {
		return u.err
	}
	client := u.store.client
	if u.uploadID == "" {
		unknown, err := client.retry(u.ctx, func(ctx context.Context) error {
			_, err := u.store.putObject(ctx, u.name, u.part.Bytes(), putOptions())
			return err
		})
		if unknown {
			return asUnknown(err)
		}
		return err
	}
	if err := u.sendPart(); err != nil {
		return err
	}
	unknown, err := client.retry(u.ctx, func(ctx context.Context) error {
		_, err := client.core.CompleteMultipartUpload(ctx, u.store.bucket, u.store.prefix+u.name, u.uploadID, u.parts, putOptions())
		return err
	})
	switch {
	case err == nil:
		u.uploadID = ""
		return nil
	case unknown && hasCode(err, codeNoSuchUpload) && u.isVisible():
		// An earlier attempt had completed it and its reply was lost.
		u.uploadID = ""
		return nil
	case unknown:
		return asUnknown(err)
	}
	return err
}

// isVisible reports whether the object is there with the size it should have.
func (u *upload) isVisible() bool {
	var info minio.ObjectInfo
	_, err := u.store.client.retry(u.ctx, func(ctx context.Context) (err error) {
		info, err = u.store.client.core.StatObject(ctx, u.store.bucket, u.store.prefix+u.name, minio.StatObjectOptions{})
		return err
	})
	return err == nil && info.Size == u.size
}

// abort removes the parts of an upload that failed, in one attempt: also when
// the caller's context has ended, which may be why it failed.
func (u *upload) abort() {
	if u.uploadID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTimeout)
	defer cancel()
	err := u.store.client.core.AbortMultipartUpload(ctx, u.store.bucket, u.store.prefix+u.name, u.uploadID)
	if err != nil {
		// The Put's own error is what its caller must see; the parts that may
		// be left are invisible and DiscardStaged finds them.
		return
	}
	u.uploadID = ""
}

// putOptions switches off the signature of every chunk: the checksum of the
// whole is in the request.
func putOptions() minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true, DisableMultipart: true}
}

func sha256Hex(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
