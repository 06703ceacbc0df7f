package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/operator"
)

// chunkBytes is how much is read at once: enough to make a system call cheap,
// and little enough that a barrier behind a batch's read does not wait.
const chunkBytes = 256 << 10

// tailBytes is how much is read behind a split's end to find the end of its
// last line: most lines are shorter.
const tailBytes = 4 << 10

// lineReader finds the lines of a split. fill blocks; next does not.
type lineReader struct {
	r            io.ReaderAt
	split        split
	lineBytesMax int

	buf []byte
	// buf[at:ready] are whole lines (the last may lack its end at the end of
	// the file), buf[ready:] is the start of a line or, while skipping, nothing.
	at, ready int
	// base is the offset of buf[0] in the file.
	base     int64
	skipping bool // the first line belongs to the split before
	atEOF    bool
}

func newLineReader(r io.ReaderAt, s split, lineBytesMax int) *lineReader {
	l := &lineReader{r: r, split: s, lineBytesMax: lineBytesMax, base: s.start}
	if s.start > 0 {
		// The byte before tells whether a line starts exactly at the split's
		// start: then skipping ends at once.
		l.base, l.skipping = s.start-1, true
	}
	return l
}

// startAt makes the line at offset the next one.
func (l *lineReader) startAt(offset int64) {
	*l = lineReader{r: l.r, split: l.split, lineBytesMax: l.lineBytesMax, buf: l.buf[:0], base: offset}
}

// offset is where the next line starts.
func (l *lineReader) offset() int64 { return l.base + int64(l.at) }

// next returns the next line of those that fill has read, without its end, and
// where it starts. The line is good until fill is called. It may be longer
// than the limit: fill only keeps lines from growing without bound.
func (l *lineReader) next() (line []byte, offset int64, ok bool) {
	offset = l.offset()
	if l.at == l.ready || offset >= l.split.end {
		return nil, offset, false
	}
	line = l.buf[l.at:l.ready]
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
		l.at++
	}
	l.at += len(line)
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, offset, true
}

// fill reads until there is a whole line that next has not returned. It
// returns io.EOF when the split has none left.
func (l *lineReader) fill(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.isDone() {
			return io.EOF
		}
		if l.at < l.ready {
			return nil
		}
		if err := l.read(); err != nil {
			return err
		}
		if l.skipping {
			l.skip()
			continue
		}
		l.findReady()
		if l.ready == 0 && len(l.buf) > l.lineBytesMax {
			return l.tooLong(l.base)
		}
	}
}

func (l *lineReader) tooLong(offset int64) error {
	return operator.Permanentf("the line at byte %d is longer than %d bytes: raise the limit with file.WithLineBytesMax if it is a record", offset, l.lineBytesMax)
}

// isDone reports whether no further line starts in the split.
func (l *lineReader) isDone() bool {
	if l.skipping {
		// Its start is known to lie behind what has been skipped.
		return l.atEOF || l.base+int64(len(l.buf)) >= l.split.end
	}
	return l.offset() >= l.split.end || l.atEOF && l.at == len(l.buf)
}

// read appends a chunk to what is left of the buffer.
func (l *lineReader) read() error {
	rest := copy(l.buf, l.buf[l.at:])
	l.base += int64(l.at)
	l.buf, l.at, l.ready = l.buf[:rest], 0, 0
	want := rest + l.readBytes(l.base+int64(rest), rest)
	if cap(l.buf) < want {
		l.buf = append(make([]byte, 0, max(want, 2*cap(l.buf))), l.buf...)
	}
	n, err := l.r.ReadAt(l.buf[rest:want], l.base+int64(rest))
	l.buf = l.buf[:rest+n]
	switch {
	case errors.Is(err, io.EOF):
		l.atEOF = true
	case err != nil:
		return fmt.Errorf("read at byte %d: %w", l.base+int64(rest), err)
	}
	return nil
}

// readBytes is how much to read at an offset behind rest bytes of a line: not
// much behind the split's end, where only its last line is wanted. What is
// left of that line is guessed from what there is.
func (l *lineReader) readBytes(offset int64, rest int) int {
	left := max(l.split.end-offset, int64(rest))
	return int(min(left+tailBytes, chunkBytes))
}

// skip drops the line that started in the split before, as far as it is read.
func (l *lineReader) skip() {
	i := bytes.IndexByte(l.buf, '\n')
	if i < 0 {
		l.base += int64(len(l.buf))
		l.buf = l.buf[:0]
		return
	}
	l.at, l.skipping = i+1, false
	l.findReady()
}

// findReady finds the end of the last whole line.
func (l *lineReader) findReady() {
	switch i := bytes.LastIndexByte(l.buf[l.at:], '\n'); {
	case l.atEOF:
		l.ready = len(l.buf)
	case i >= 0:
		l.ready = l.at + i + 1
	default:
		l.ready = l.at
	}
}
