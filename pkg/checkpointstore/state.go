package checkpointstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errInline stops a Put whose bytes turned out to fit into the handle.
var errInline = errors.New("state is small enough to travel inline")

// WriteState stores what write produces as a file of the checkpoint at loc and
// returns its handle. When it is at most inlineMax bytes it travels in the
// handle and no object is made; 0 keeps everything out of handles but empty
// state, which needs no object. write is called once, on this goroutine.
//
// The handle is returned only when the bytes are durable. After an error with
// an unknown outcome the file is removed, but may exist all the same
// (objectstore.ErrUnknownOutcome); its name is not used again.
func (s *Store) WriteState(ctx context.Context, loc Location, file StateFile, inlineMax int, write func(io.Writer) error) (snapshot.StateHandle, error) {
	store, err := s.open(loc.Base)
	if err != nil {
		return snapshot.StateHandle{}, err
	}
	name := loc.name(file.String())
	var sink stateWriter
	err = store.Put(ctx, name, func(w io.Writer) error {
		sink = stateWriter{dst: w, bufferMax: inlineMax}
		if err := write(&sink); err != nil {
			return err
		}
		if sink.spilled {
			return nil
		}
		return errInline
	})
	switch {
	case err == nil:
		return snapshot.StateHandle{Name: name, Size: sink.size, CRC32C: sink.crc}, nil
	case errors.Is(err, errInline):
		return snapshot.StateHandle{Size: sink.size, CRC32C: sink.crc, Inline: sink.buffer}, nil
	}
	err = fmt.Errorf("write state: %w", err)
	if errors.Is(err, objectstore.ErrUnknownOutcome) {
		// Nobody will hear of the file, so nobody else can remove it before
		// its attempt is swept.
		if deleteErr := store.Delete(ctx, name); deleteErr != nil {
			err = fmt.Errorf("%w (and removing it: %w)", err, deleteErr)
		}
	}
	return snapshot.StateHandle{}, err
}

// stateWriter counts and sums what passes, and holds the first bytes back as
// long as they could travel inline.
type stateWriter struct {
	dst       io.Writer
	bufferMax int
	buffer    []byte
	spilled   bool
	size      int64
	crc       uint32
}

func (w *stateWriter) Write(p []byte) (int, error) {
	w.size += int64(len(p))
	w.crc = crc32.Update(w.crc, castagnoli, p)
	if !w.spilled {
		if len(w.buffer)+len(p) <= w.bufferMax {
			w.buffer = append(w.buffer, p...)
			return len(p), nil
		}
		if len(p) == 0 {
			return 0, nil
		}
		w.spilled = true
		if len(w.buffer) > 0 {
			if _, err := w.dst.Write(w.buffer); err != nil {
				return 0, err
			}
			w.buffer = nil
		}
	}
	return w.dst.Write(p)
}

// OpenState returns a reader of the state that the handle names, relative to
// base. The reader checks size and checksum: it ends with io.EOF only if all
// bytes were read and right, and otherwise with an error that names the file
// (ErrCorrupt). What it gave before that must not be used. The caller closes it.
func (s *Store) OpenState(ctx context.Context, base string, handle snapshot.StateHandle) (io.ReadCloser, error) {
	if handle.IsInline() {
		return newVerifyingReader(io.NopCloser(bytes.NewReader(handle.Inline)), "inline state", handle), nil
	}
	store, err := s.open(base)
	if err != nil {
		return nil, err
	}
	reader, err := store.Open(ctx, handle.Name)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	return newVerifyingReader(reader, store.URI(handle.Name), handle), nil
}

// ReadState reads state as a whole into memory; see OpenState.
func (s *Store) ReadState(ctx context.Context, base string, handle snapshot.StateHandle) ([]byte, error) {
	reader, err := s.OpenState(ctx, base, handle)
	if err != nil {
		return nil, err
	}
	// A corrupt size must not make us allocate what is not there: the buffer
	// grows with the bytes that arrive.
	const firstAllocMax = 64 << 20
	var content bytes.Buffer
	content.Grow(int(min(max(handle.Size, 0), firstAllocMax)) + bytes.MinRead)
	_, err = content.ReadFrom(reader)
	if closeErr := reader.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return content.Bytes(), nil
}

// verifyingReader passes bytes on and compares them with the handle at the end.
type verifyingReader struct {
	src    io.ReadCloser
	uri    string
	handle snapshot.StateHandle
	size   int64
	crc    uint32
}

func newVerifyingReader(src io.ReadCloser, uri string, handle snapshot.StateHandle) *verifyingReader {
	return &verifyingReader{src: src, uri: uri, handle: handle}
}

func (r *verifyingReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.size += int64(n)
	r.crc = crc32.Update(r.crc, castagnoli, p[:n])
	switch {
	case r.size > r.handle.Size:
		return 0, fmt.Errorf("%s: has more than the %d bytes that were written: %w", r.uri, r.handle.Size, ErrCorrupt)
	case err == nil:
		return n, nil
	case err != io.EOF:
		return n, fmt.Errorf("%s: %w", r.uri, err)
	case r.size != r.handle.Size:
		return n, fmt.Errorf("%s: has %d bytes, %d were written: %w", r.uri, r.size, r.handle.Size, ErrCorrupt)
	case r.crc != r.handle.CRC32C:
		return n, fmt.Errorf("%s: checksum is %08x, %08x was written: %w", r.uri, r.crc, r.handle.CRC32C, ErrCorrupt)
	}
	return n, io.EOF
}

func (r *verifyingReader) Close() error {
	if err := r.src.Close(); err != nil {
		return fmt.Errorf("close %s: %w", r.uri, err)
	}
	return nil
}
