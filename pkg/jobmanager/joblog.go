package jobmanager

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

const (
	// logSegmentBytesMax is the size of one file of a job's log. Two are
	// kept, so a job has between one and two of them on disk.
	logSegmentBytesMax = 8 << 20
	// logBatchLinesMax bounds the lines of one message to a reader.
	logBatchLinesMax = 1000
	// logEntryBytesMax refuses a damaged length; a line of an executor is far shorter.
	logEntryBytesMax = 4 << 20
)

// jobLog is the output of one job's executors, newest lines, in two files in
// the JobManager's working directory: <job>.log and <job>.log.1. Entries are
// protobuf lines with their length in front. It may be used concurrently.
type jobLog struct {
	path string

	mu struct {
		sync.Mutex
		file *os.File
		size int64
		// generation counts the files that were begun; readers notice by it
		// that theirs was put aside or removed.
		generation int
		// more is closed when something was written or the log was ended.
		more  chan struct{}
		ended bool
	}
}

// openJobLog opens the log of a job, going on behind what an earlier
// JobManager wrote.
func openJobLog(dir string, job ids.JobID) (*jobLog, error) {
	l := &jobLog{path: filepath.Join(dir, string(job)+".log")}
	l.mu.more = make(chan struct{})
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of job %s: %w", job, err)
	}
	// A JobManager that was killed may have left half an entry, behind which
	// nobody could read on.
	size := wholeEntries(file)
	if err := file.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("open log of job %s: %w", job, err), file.Close())
	}
	l.mu.file, l.mu.size = file, size
	return l, nil
}

// wholeEntries is the size of the entries at the start of a log that can be read.
func wholeEntries(file io.Reader) int64 {
	buffered := bufio.NewReader(file)
	for size := int64(0); ; {
		_, length, err := readEntry(buffered)
		if err != nil {
			return size
		}
		size += length
	}
}

// endedJobLog is the log of a job that was over when this JobManager started:
// it is only read, and holds no file open.
func endedJobLog(dir string, job ids.JobID) *jobLog {
	l := &jobLog{path: filepath.Join(dir, string(job)+".log")}
	l.mu.more = make(chan struct{})
	l.mu.ended = true
	return l
}

// append writes lines, and the count of those that were lost before them.
func (l *jobLog) append(lines []*pb.LogLine, dropped int64) error {
	if dropped > 0 {
		lines = append([]*pb.LogLine{{
			Source: "weir", Text: fmt.Sprintf("(%d lines were dropped: they came faster than they could be sent)", dropped),
		}}, lines...)
	}
	var content []byte
	for _, line := range lines {
		content = binary.AppendUvarint(content, uint64(proto.Size(line)))
		var err error
		if content, err = (proto.MarshalOptions{}).MarshalAppend(content, line); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended || len(content) == 0 {
		return nil
	}
	if l.mu.size > 0 && l.mu.size+int64(len(content)) > logSegmentBytesMax {
		if err := l.rotateLocked(); err != nil {
			return err
		}
	}
	if _, err := l.mu.file.Write(content); err != nil {
		// Half an entry would hide all that follow.
		return fmt.Errorf("write log: %w", errors.Join(err, l.mu.file.Truncate(l.mu.size)))
	}
	l.mu.size += int64(len(content))
	l.wakeLocked()
	return nil
}

func (l *jobLog) rotateLocked() error {
	// The old file stays ours until there is a new one: when that cannot be
	// made, the next lines try again, and find the old one put aside already.
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("rotate log: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	old := l.mu.file
	l.mu.file, l.mu.size = file, 0
	l.mu.generation++
	if err := old.Close(); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

func (l *jobLog) wakeLocked() {
	close(l.mu.more)
	l.mu.more = make(chan struct{})
}

// end lets followers return once they have read everything: the job is over.
// The files stay readable.
func (l *jobLog) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended {
		return nil
	}
	l.mu.ended = true
	l.wakeLocked()
	return l.mu.file.Close()
}

// remove deletes the files. After end only.
func (l *jobLog) remove() error {
	var errs []error
	for _, name := range []string{l.path, l.path + ".1"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// read sends the lines there are, oldest first; with follow also those to
// come, until the job is over or ctx ends.
func (l *jobLog) read(ctx context.Context, follow bool, send func(*pb.LogLines) error) error {
	reader := logReader{log: l}
	defer reader.close()
	switch err := reader.openOldest(); {
	case errors.Is(err, os.ErrNotExist):
		return nil // written under another JobManager's directory, or never
	case err != nil:
		return err
	}
	for {
		l.mu.Lock()
		more, ended := l.mu.more, l.mu.ended
		l.mu.Unlock()
		// What was written before more was taken is read now; the rest closes more.
		if err := reader.drain(send); err != nil {
			return err
		}
		if !follow || ended {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logReader reads the log's files one after the other. It holds the one that
// it reads open, so that putting it aside does not disturb it.
type logReader struct {
	log        *jobLog
	file       *os.File
	buffered   *bufio.Reader
	offset     int64
	generation int
}

func (r *logReader) close() {
	if r.file != nil {
		// Opened for reading: closing it loses nothing.
		_ = r.file.Close()
	}
}

// openOldest begins with the file that was put aside, or the current one if there is none.
func (r *logReader) openOldest() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	file, err := os.Open(r.log.path + ".1")
	generation := r.log.mu.generation - 1
	if errors.Is(err, os.ErrNotExist) {
		file, err = os.Open(r.log.path)
		generation++
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	r.use(file, generation)
	return nil
}

func (r *logReader) use(file *os.File, generation int) {
	r.close()
	r.file, r.generation, r.offset = file, generation, 0
	r.buffered = bufio.NewReader(file)
}

// drain sends all that is there now.
func (r *logReader) drain(send func(*pb.LogLines) error) error {
	for {
		// The order matters: a file that was put aside gets no more lines, so
		// what is read after this moment is all of it.
		r.log.mu.Lock()
		current := r.log.mu.generation
		r.log.mu.Unlock()
		if err := r.drainFile(send); err != nil {
			return err
		}
		if r.generation >= current {
			return nil
		}
		if err := r.openNext(); err != nil {
			return err
		}
	}
}

// openNext goes on to the file behind the one that was read. If that is gone
// too, the reader was too slow and goes on with the oldest that there is.
func (r *logReader) openNext() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	name, generation := r.log.path, r.log.mu.generation
	if r.generation < generation-1 {
		name, generation = r.log.path+".1", generation-1
	}
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	r.use(file, generation)
	return nil
}

func (r *logReader) drainFile(send func(*pb.LogLines) error) error {
	batch := &pb.LogLines{}
	flush := func() error {
		if len(batch.Lines) == 0 {
			return nil
		}
		err := send(batch)
		batch = &pb.LogLines{}
		return err
	}
	for {
		line, length, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			// The end, or a line that is being written: from its start next time.
			if _, err := r.file.Seek(r.offset, io.SeekStart); err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			r.buffered.Reset(r.file)
			return flush()
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		r.offset += length
		batch.Lines = append(batch.Lines, line)
		if len(batch.Lines) == logBatchLinesMax {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

func (r *logReader) next() (*pb.LogLine, int64, error) {
	line, length, err := readEntry(r.buffered)
	if errors.Is(err, errDamaged) {
		err = fmt.Errorf("%s is damaged at byte %d", r.log.path, r.offset)
	}
	return line, length, err
}

// errDamaged: what should be the length of an entry is none.
var errDamaged = errors.New("the length of an entry is damaged")

// readEntry reads one entry and says how many bytes it takes.
func readEntry(from *bufio.Reader) (*pb.LogLine, int64, error) {
	size, err := binary.ReadUvarint(from)
	if err != nil {
		return nil, 0, err
	}
	if size > logEntryBytesMax {
		return nil, 0, errDamaged
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(from, content); err != nil {
		return nil, 0, err
	}
	line := &pb.LogLine{}
	if err := proto.Unmarshal(content, line); err != nil {
		return nil, 0, err
	}
	return line, int64(len(binary.AppendUvarint(nil, size))) + int64(size), nil
}
