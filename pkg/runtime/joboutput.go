package runtime

import (
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
func (o *jobOutput) add(job ids.JobID, source, text string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	size := len(text) + len(source) + lineOverheadBytes
	o.mu.Lock()
	if o.mu.bytes+size > outputBytesMax {
		o.mu.dropped[job]++
	} else {
		o.mu.bytes += size
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
