package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirstream/weir/pkg/snapshot"
)

// copyBufferBytes is the buffer of one file that is being copied: several are
// at a time, and larger ones are no faster.
const copyBufferBytes = 256 << 10

// FetchState brings the state that the handle names, relative to base, into a
// new local file. Size and checksum are verified (ErrCorrupt, as in OpenState).
// After an error there is no file.
func (s *Store) FetchState(ctx context.Context, base string, handle snapshot.StateHandle, path string) (err error) {
	reader, err := s.OpenState(ctx, base, handle)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := reader.Close(); err == nil && closeErr != nil {
			err = errors.Join(fmt.Errorf("fetch state: %w", closeErr), os.Remove(path))
		}
	}()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("fetch state: %w", err)
	}
	// The anonymous structs hide ReadFrom and WriteTo, which would choose buffers of their own.
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{reader}, make([]byte, min(copyBufferBytes, max(handle.Size, 1))))
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("fetch state: %w", err), os.Remove(path))
	}
	return nil
}

// FileContent returns what WriteState and WriteShared take to store a local
// file of that size. A file of another size is an error.
func FileContent(path string, size int64) func(io.Writer) error {
	return func(w io.Writer) (err error) {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{file}, make([]byte, min(copyBufferBytes, max(size, 1))))
		if err == nil && n != size {
			err = fmt.Errorf("%s has %d bytes, not %d", path, n, size)
		}
		return err
	}
}

// VerifyState reads the state that the handle names, relative to base, and
// compares it with the handle: ErrCorrupt if it is not what was stored, as in
// OpenState. Nothing is kept of it.
func (s *Store) VerifyState(ctx context.Context, base string, handle snapshot.StateHandle) error {
	reader, err := s.OpenState(ctx, base, handle)
	if err != nil {
		return err
	}
	return verify(reader, handle)
}

// VerifyFile reads a local file and compares it with the handle: ErrCorrupt if
// it is not what was stored.
func VerifyFile(path string, handle snapshot.StateHandle) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("verify state: %w", err)
	}
	return verify(newVerifyingReader(file, path, handle), handle)
}

// verify reads all that the reader has.
func verify(reader io.ReadCloser, handle snapshot.StateHandle) error {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{reader}, make([]byte, min(copyBufferBytes, max(handle.Size, 1))))
	if err = errors.Join(err, reader.Close()); err != nil {
		return fmt.Errorf("verify state: %w", err)
	}
	return nil
}
