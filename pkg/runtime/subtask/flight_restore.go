package subtask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/watermark"
	"github.com/weirstream/weir/pkg/snapshot"
)

const (
	// fetchedBytesMin is from what size on a file of records in flight is brought to
	// disk, and not into memory: one of a loop may be as large as the disk, and of the
	// file of another subtask only some is for this one.
	fetchedBytesMin = 1 << 20
	// logPieceBytes is how much of a loop's log becomes one frame, at the next end of
	// a record: about as much as frames have.
	logPieceBytes = 64 << 10
)

// flightFile is a file of records in flight that can be read.
type flightFile interface {
	io.ReaderAt
	io.Closer
}

// inMemory is a flightFile.
type inMemory struct{ *bytes.Reader }

// Close implements io.Closer.
func (inMemory) Close() error { return nil }

// readInFlight reads the records that were in flight, for the channels to
// deliver before anything new.
func (x *restoration) readInFlight(ctx context.Context) error {
	x.flight = make([][]element.Frame, len(x.in.channels))
	for _, in := range x.cfg.Deployment.InFlight {
		if err := x.readFlightFile(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (x *restoration) readFlightFile(ctx context.Context, in coordinator.RestoredInFlight) (err error) {
	file, size, err := x.openInFlight(ctx, in.Handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, p := range in.Parts {
		if p.Offset < 0 || p.Length < 0 || p.Length > size-p.Offset || p.Channel < 0 || p.Channel >= len(x.in.channels) {
			return operator.Permanentf("records at %d to %d for channel %d: the handle does not fit its file or the subtask", p.Offset, p.Offset+p.Length, p.Channel)
		}
		if err := x.restorePart(p, io.NewSectionReader(file, p.Offset, p.Length)); err != nil {
			return fmt.Errorf("edge %s: %w", x.cfg.Graph.EdgeName(x.in.channels[p.Channel].of.Edge), err)
		}
	}
	return nil
}

// openInFlight opens a file of records in flight that was verified, for as long as it is open.
func (x *restoration) openInFlight(ctx context.Context, h snapshot.StateHandle) (flightFile, int64, error) {
	if h.IsInline() || h.Size < fetchedBytesMin || x.cfg.Dir == "" {
		data, err := x.readHandle(ctx, h)
		return inMemory{bytes.NewReader(data)}, int64(len(data)), err
	}
	if err := os.MkdirAll(x.cfg.Dir, 0o700); err != nil {
		return nil, 0, fmt.Errorf("make directory to restore from: %w", err)
	}
	path := filepath.Join(x.cfg.Dir, "in-flight")
	local := x.local.link(h, path)
	if !local {
		err := x.readTwice(ctx, func() error { return x.cfg.Store.FetchState(ctx, x.cfg.RestoreBase, h, path) })
		if err != nil {
			return nil, 0, err
		}
	}
	x.count(h, local)
	file, err := os.Open(path)
	// It goes when it is closed, whatever becomes of the subtask.
	if err = errors.Join(err, os.Remove(path)); err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, 0, fmt.Errorf("open records in flight: %w", err)
	}
	return file, h.Size, nil
}

// restorePart gives a channel the records, or those that are the subtask's.
func (x *restoration) restorePart(p coordinator.RestoredPart, from io.Reader) error {
	c := &x.in.channels[p.Channel]
	var grouper operator.Grouper
	if x.chain != nil {
		grouper = x.chain.Groupers[c.edge]
	}
	if p.Rekey && grouper == nil {
		return operator.Permanentf("its records are to be spread by key, and it has none")
	}
	if c.kind == align.Feedback && grouper != nil && x.cfg.Dir != "" {
		return x.restoreLog(p, grouper, from)
	}
	data := make([]byte, p.Length)
	if _, err := io.ReadFull(from, data); err != nil {
		return fmt.Errorf("read records in flight: %w", err)
	}
	data, err := x.owned(p, grouper, data)
	if err == nil && len(data) > 0 {
		x.flight[p.Channel] = append(x.flight[p.Channel], element.Frame{Kind: element.Records, Data: data})
	}
	return err
}

// owned is what the subtask gets of some records.
func (x *restoration) owned(p coordinator.RestoredPart, grouper operator.Grouper, data []byte) ([]byte, error) {
	if !p.Rekey {
		return data, nil
	}
	data, _, err := operator.OwnedRecords(grouper, data, x.chain.Operators[0].Context.KeyGroups)
	return data, err
}

// restoreLog gives the head of a loop what it had logged: in pieces, of which it
// keeps in memory and puts on disk as much as it did of what came round.
func (x *restoration) restoreLog(p coordinator.RestoredPart, grouper operator.Grouper, from io.Reader) error {
	var buf []byte
	want := logPieceBytes
	for rest := p.Length; rest > 0 || len(buf) > 0; {
		have := len(buf)
		more := int(min(rest, int64(max(0, want-have))))
		buf = append(buf, make([]byte, more)...)
		if _, err := io.ReadFull(from, buf[have:]); err != nil {
			return fmt.Errorf("read what a loop had logged: %w", err)
		}
		rest -= int64(more)
		whole, err := operator.WholeRecords(grouper, buf)
		switch {
		case rest == 0 && err != nil:
			return err
		case whole == 0:
			want *= 2 // a record that is larger
			continue
		}
		piece, err := x.owned(p, grouper, bytes.Clone(buf[:whole]))
		if err != nil {
			return err
		}
		buf, want = append(buf[:0], buf[whole:]...), logPieceBytes
		if len(piece) == 0 {
			continue
		}
		f := element.Frame{Kind: element.Records, Data: piece}
		spilled, err := x.loop.keep(&f)
		if err != nil {
			return err
		}
		x.spilled += spilled
		x.flight[p.Channel] = append(x.flight[p.Channel], f)
	}
	return nil
}

// handOver gives the channels what was read for them. It is called by the subtask.
func (x *restoration) handOver() {
	for ch, frames := range x.flight {
		x.in.channels[ch].toRestore = frames
	}
	x.loop.spilled += x.spilled
}

// restore puts what was in flight in front of everything that will come, and
// behind it the watermark that the channels begin at: the lowest that any
// producer had emitted.
func (in *inputs) restore(s *Subtask) {
	for ch := range in.channels {
		c := &in.channels[ch]
		// What needs no credit may have come during the restore.
		waiting := c.queue
		c.queue = frameQueue{}
		c.restored = len(c.toRestore)
		if c.kind == align.Feedback {
			in.restoredLog += c.restored
		} else {
			in.restored += c.restored
		}
		for _, f := range c.toRestore {
			in.push(ch, f)
		}
		c.toRestore = nil
		for _, w := range s.cfg.Deployment.Watermarks {
			if w.Edge == c.of.Edge && w.Watermark != watermark.None {
				in.push(ch, element.Frame{Kind: element.WatermarkKind, Watermark: w.Watermark})
			}
		}
		for waiting.len() > 0 {
			in.push(ch, waiting.pop())
		}
	}
}
