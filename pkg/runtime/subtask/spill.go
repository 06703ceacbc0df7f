package subtask

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// spill keeps frames on disk, one after the other in files, each of which goes
// when nobody will read anything in it any more: frames are read about in the order
// in which they were written, so the files have about what is still to be read.
// All but the reading belongs to the subtask's loop.
type spill struct {
	dir string
	// fileMax is the size from which the next frame begins another file.
	fileMax int64
	// files are those on disk. The last one is written to, unless it is full.
	files []*spillFile
	names int // given so far
	err   error
}

// spillShare is how much larger a file gets than what is kept in memory: large
// enough to be few, small against a disk.
const spillShare = 16

type spillFile struct {
	in   *spill
	file *os.File
	end  int64
	live int // frames that somebody will read
}

// spilledFrame is a frame on disk. It is its own owner: a frame that is dropped
// unread frees it.
type spilledFrame struct {
	in             *spillFile
	offset, length int64
	pins           int
}

func (x *spill) write(data []byte) (*spilledFrame, error) {
	to, err := x.next()
	if err != nil {
		return nil, err
	}
	if _, err := to.file.WriteAt(data, to.end); err != nil {
		return nil, err
	}
	f := &spilledFrame{in: to, offset: to.end, length: int64(len(data)), pins: 1}
	to.end += f.length
	to.live++
	return f, nil
}

// next is the file that is written to.
func (x *spill) next() (*spillFile, error) {
	if n := len(x.files); n > 0 {
		last := x.files[n-1]
		if last.live == 0 {
			last.end = 0 // its space is used again
		}
		if last.end < x.fileMax {
			return last, nil
		}
	}
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return nil, err
	}
	x.names++
	file, err := os.OpenFile(filepath.Join(x.dir, "loop-"+strconv.Itoa(x.names)), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f := &spillFile{in: x, file: file}
	x.files = append(x.files, f)
	return f, nil
}

// reader reads the frame; several may be read at once, on any goroutine, until
// the frame is unpinned.
func (f *spilledFrame) reader() io.Reader { return io.NewSectionReader(f.in.file, f.offset, f.length) }

// pin keeps the frame for one more who will read it.
func (f *spilledFrame) pin() { f.pins++ }

func (f *spilledFrame) unpin() {
	if f.pins--; f.pins > 0 {
		return
	}
	file, x := f.in, f.in.in
	file.live--
	if n := len(x.files); file.live > 0 || n == 0 || file == x.files[n-1] {
		return
	}
	x.files = slices.DeleteFunc(x.files, func(other *spillFile) bool { return other == file })
	x.err = errors.Join(x.err, file.remove())
}

// Free implements element.Owner.
func (f *spilledFrame) Free() { f.unpin() }

func (f *spillFile) remove() error { return errors.Join(f.file.Close(), os.Remove(f.file.Name())) }

// close removes what is left.
func (x *spill) close() error {
	err := x.err
	for _, f := range x.files {
		err = errors.Join(err, f.remove())
	}
	x.files, x.err = nil, nil
	if err != nil {
		return fmt.Errorf("remove what a loop had on disk: %w", err)
	}
	return nil
}
