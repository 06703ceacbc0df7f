package runtime

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

const (
	// outputBytesMax bounds the lines that wait to be sent: a burst of some
	// ten thousand lines fits, and a TaskManager that is cut off keeps no more.
	outputBytesMax = 4 << 20
	// lineOverheadBytes is what a waiting line takes beside its text.
	lineOverheadBytes = 96
	// batchLinesMax bounds one message.
	batchLinesMax = 1000
)

// jobOutput collects the lines that executors print until they can be sent.
type jobOutput struct {
	mu struct {
		sync.Mutex
		lines   []outputLine
		bytes   int
		dropped map[ids.JobID]int64
		// added and sent count all lines ever; progress is closed when sent grows.
		added, sent int64
		progress    chan struct{}
	}
	ready chan struct{}
}

type outputLine struct {
	job  ids.JobID
	line *pb.LogLine
}

func newJobOutput() *jobOutput {
	o := &jobOutput{ready: make(chan struct{}, 1)}
	o.mu.dropped = map[ids.JobID]int64{}
	return o
}

// add takes a line, or counts it as dropped when there is no room.
func (o *jobOutput) add(job ids.JobID, line string) {
	source, text := splitSource(line)
	text = strings.ToValidUTF8(text, "\uFFFD")
	size := len(text) + len(source) + lineOverheadBytes
	o.mu.Lock()
	if o.mu.bytes+size > outputBytesMax {
		o.mu.dropped[job]++
	} else {
		o.mu.bytes += size
		o.mu.added++
		o.mu.lines = append(o.mu.lines, outputLine{job: job, line: &pb.LogLine{Source: source, Text: text, UnixMs: time.Now().UnixMilli()}})
	}
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take removes lines of up to bytesMax bytes, as messages of one job each, in
// order, and says how many bytes they are.
func (o *jobOutput) take(bytesMax int) (messages []*pb.LogLines, taken int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	var last *pb.LogLines
	for ; n < len(o.mu.lines) && taken < bytesMax; n++ {
		l := o.mu.lines[n]
		if last == nil || last.JobId != string(l.job) || len(last.Lines) == batchLinesMax {
			last = &pb.LogLines{JobId: string(l.job)}
			messages = append(messages, last)
		}
		last.Lines = append(last.Lines, l.line)
		taken += len(l.line.Text) + len(l.line.Source) + lineOverheadBytes
	}
	clear(o.mu.lines[:n])
	o.mu.lines = o.mu.lines[n:]
	o.mu.bytes -= taken
	if len(o.mu.lines) == 0 {
		o.mu.lines = nil
		// What was dropped came after all that was kept.
		for job, count := range o.mu.dropped {
			messages = append(messages, &pb.LogLines{JobId: string(job), Dropped: count})
		}
		clear(o.mu.dropped)
	}
	return messages, taken
}

// markSent says that the lines of the messages are on their way.
func (o *jobOutput) markSent(messages []*pb.LogLines) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range messages {
		o.mu.sent += int64(len(m.Lines))
	}
	if o.mu.progress != nil {
		close(o.mu.progress)
		o.mu.progress = nil
	}
}

// waitSent waits until all that was added before is on its way, or ctx ends.
func (o *jobOutput) waitSent(ctx context.Context) {
	o.mu.Lock()
	goal := o.mu.added
	o.mu.Unlock()
	for {
		o.mu.Lock()
		if o.mu.sent >= goal {
			o.mu.Unlock()
			return
		}
		if o.mu.progress == nil {
			o.mu.progress = make(chan struct{})
		}
		progress := o.mu.progress
		o.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return
		}
	}
}

// executorSource is the source of lines that no sink printed.
const executorSource = "executor"

// printed is the prefix of the print sink's lines: operator and subtask.
var printed = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,99}\[[0-9]{1,5}\])> `)

// splitSource takes the source off a line that an executor printed.
func splitSource(line string) (source, text string) {
	if match := printed.FindStringSubmatch(line); match != nil {
		return match[1], line[len(match[0]):]
	}
	return executorSource, line
}
