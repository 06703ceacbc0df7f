package subtask

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// loopHead is what a subtask of a loop does besides. The head takes what comes
// round at once, whatever it can pass on itself, so that a full loop does not wait
// for itself. What it cannot keep in memory goes to disk.
//
// Records that a snapshot finds in front of its barrier on the way round are
// collected like those that a barrier overtakes, see flight: the log of
// Carbone et al. 2015, section 4.3.
type loopHead struct {
	s      *Subtask
	isHead bool
	// isMember: the subtask is of a loop, its head or not. inner are its outputs
	// that lead on in the loop, but not back to the head.
	isMember bool
	inner    []bool
	// inputEnded: all forward inputs have ended. What is in the loop still goes
	// round, until EndLoop.
	inputEnded bool
	// queued is what of the feedback channels is in memory, and queuedMax the most
	// that may be.
	queued, queuedMax int64
	// onDisk is the number of frames that wait on disk. While there are any, the
	// head takes no records from outside: a loop that gets more than it lets out
	// slows its input down, as any slow operator does.
	onDisk int
	spill  spill
	// spilled counts the bytes put on disk.
	spilled int64
}

const (
	// loopBytesMax is Config.LoopBytesMax where that is not set: as much as some
	// hundred frames, so that only a loop which is full spills.
	loopBytesMax = 4 << 20
	// loopBytesMaxDiskless is for subtasks without a directory, which fail when
	// more than this comes round before they get to it.
	loopBytesMaxDiskless = 256 << 20
)

func (l *loopHead) init(s *Subtask) {
	l.s = s
	l.queuedMax = cmp.Or(s.cfg.LoopBytesMax, loopBytesMax)
	l.spill = spill{dir: s.cfg.Dir, fileMax: spillShare * l.queuedMax}
	for ch := range s.in.channels {
		l.isHead = l.isHead || s.in.channels[ch].kind == align.Feedback
	}
	g := s.cfg.Graph
	outputs := g.Vertices[s.id.Vertex].Outputs
	l.inner = make([]bool, len(outputs))
	for v := range g.Vertices {
		loop := g.Loop(ids.VertexID(v))
		if !slices.Contains(loop, s.id.Vertex) {
			continue
		}
		l.isMember = true
		for n, i := range outputs {
			e := &g.Edges[i]
			l.inner[n] = l.inner[n] || !e.Edge.Feedback && slices.Contains(loop, e.To)
		}
	}
}

// received gives credit for records at once, and puts on disk what is too much.
// The frame keeps its place in the queue, and is read back when its turn comes.
func (l *loopHead) received(ch int, f *element.Frame) bool {
	l.s.host.Grant(ch, int64(len(f.Data)))
	spilled, err := l.keep(f)
	l.spilled += spilled
	if err != nil {
		f.Free()
		l.s.failed(err, l.s.head().Context.Operator)
	}
	return err == nil
}

// keep counts records that will have to wait, and puts on disk what is too much:
// how many bytes. It owns the frame unless it returns an error.
func (l *loopHead) keep(f *element.Frame) (spilledBytes int64, err error) {
	length := int64(len(f.Data))
	l.queued += length
	if l.queued <= l.queuedMax {
		return 0, nil
	}
	if l.s.cfg.Dir == "" {
		if l.queued > loopBytesMaxDiskless {
			return 0, operator.Permanentf("more than %d bytes go round the loop, and the subtask has no directory to put them in", int64(loopBytesMaxDiskless))
		}
		return 0, nil
	}
	spilled, err := l.spill.write(f.Data)
	if err != nil {
		return 0, fmt.Errorf("put records that come round a loop on disk: %w", err)
	}
	f.Free()
	l.queued -= length
	l.onDisk++
	f.Owner = spilled
	return length, nil
}

// load brings the first frame of a channel back from disk, if it is there.
func (l *loopHead) load(f *element.Frame) error {
	spilled, ok := f.Owner.(*spilledFrame)
	if !ok || f.Data != nil {
		return nil
	}
	data := make([]byte, spilled.length)
	if _, err := io.ReadFull(spilled.reader(), data); err != nil {
		return fmt.Errorf("read records that came round a loop: %w", err)
	}
	spilled.unpin()
	l.onDisk--
	f.Data, f.Owner = data, nil
	l.queued += spilled.length // consumed takes it off again
	return nil
}

// consumed follows a frame of a feedback channel that was processed whole.
func (l *loopHead) consumed(bytes int64) { l.queued -= bytes }

// endInput follows the end of all forward inputs: event time has come to its
// end for what is in the loop too.
func (l *loopHead) endInput() {
	if l.inputEnded {
		return
	}
	l.inputEnded = true
	l.s.time.reach(0, watermark.Max)
	l.s.host.Report(StatusReport{Status: coordinator.RunningInputEnded})
}

// isOver reports whether the subtask has nothing to send round a loop but for
// what still comes round: for a record or a timer operators emit, and there is
// none.
func (l *loopHead) isOver() bool {
	return l.isMember && (l.inputEnded || !l.isHead) && l.s.time.isAtEnd()
}

// EndLoop ends the loop that the subtask is the head of: its inputs have ended,
// and a completed checkpoint found nothing in it.
func (s *Subtask) EndLoop() {
	if s.phase != running || !s.loop.inputEnded || s.ending {
		return
	}
	s.reachEndOfData()
}

// close removes what is on disk.
func (l *loopHead) close() error { return l.spill.close() }
