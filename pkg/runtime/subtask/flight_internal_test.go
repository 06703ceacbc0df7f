package subtask

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/snapshot"
)

// TestRecordsInFlightGoBeforeWhatCameDuringTheRestore has a peer that was faster:
// its watermark and the end of its data need no credit, and were there first.
func TestRecordsInFlightGoBeforeWhatCameDuringTheRestore(t *testing.T) {
	s := &Subtask{}
	s.cfg.Deployment.Watermarks = []coordinator.RestoredWatermark{{Edge: 3, Watermark: 100}}
	in := &s.in
	in.channels = []inputChannel{{
		kind: align.Overtakable, of: snapshot.ChannelPart{Edge: 3},
		toRestore: []element.Frame{{Kind: element.Records, Data: []byte("a")}, {Kind: element.Records, Data: []byte("b")}},
	}}
	in.ready.init(1)
	in.push(0, element.Frame{Kind: element.StatusKind})
	in.push(0, element.Frame{Kind: element.WatermarkKind, Watermark: 200})
	in.push(0, element.Frame{Kind: element.EndOfData})
	in.restore(s)
	var kinds []element.Kind
	for q := &in.channels[0].queue; q.len() > 0; {
		kinds = append(kinds, q.pop().Kind)
	}
	want := []element.Kind{
		element.Records, element.Records, element.WatermarkKind, element.StatusKind, element.WatermarkKind, element.EndOfData,
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("the channel delivers %v, want %v", kinds, want)
	}
}

// TestGivenUpSnapshotCollectsNothing has a snapshot given up while its state is
// being stored: barriers and records that still come do not reach for what it
// had collected.
func TestGivenUpSnapshotCollectsNothing(t *testing.T) {
	f := &flight{in: make([][]segment, 2), open: []bool{true, true}, collecting: true, waiting: 1}
	f.release()
	if f.collecting || f.waiting != 0 || f.open != nil {
		t.Errorf("after it was released it still collects: %+v", f)
	}
}

// reports keeps what a subtask tells, and the work that it asks for.
type reports struct {
	Host
	all  []Report
	work []Work
}

func (r *reports) Report(rep Report) { r.all = append(r.all, rep) }
func (r *reports) Go(w Work)         { r.work = append(r.work, w) }
func (*reports) Grant(int, int64)    {}

// TestASnapshotThatHoldsTooMuchTakesNothingFromTheNext has two logs of a loop's
// head open, as with several checkpoints at once: when one outgrows its bound
// the other goes on collecting, that very frame included.
func TestASnapshotThatHoldsTooMuchTakesNothingFromTheNext(t *testing.T) {
	host := &reports{}
	s := &Subtask{cfg: Config{InFlightBytesMax: 8}, host: host}
	s.in.channels = []inputChannel{{kind: align.Feedback}}
	s.loop.s = s
	open := func(bytes int64) *taken {
		return &taken{
			flight:  &flight{in: make([][]segment, 1), open: []bool{true}, collecting: true, bytes: bytes},
			written: &snapshot.SubtaskState{},
		}
	}
	first, second, third := open(6), open(0), open(0)
	first.barrier.Checkpoint, second.barrier.Checkpoint, third.barrier.Checkpoint = 1, 2, 3
	s.snapshot.open = []*taken{first, second, third}
	if !s.received(0, &element.Frame{Kind: element.Records, Data: []byte("abc")}) {
		t.Fatal("the subtask does not go on")
	}
	if !first.declined {
		t.Error("the first snapshot holds more than it may")
	}
	// It was aligned: that is no advice.
	if d, ok := host.all[0].(DeclineReport); !ok || strings.Contains(d.Reason, "leave the checkpoint aligned") {
		t.Errorf("it is declined with %+v", host.all[0])
	}
	if second.flight.bytes != 3 || third.flight.bytes != 3 {
		t.Errorf("the others have %d and %d bytes of the frame, want 3 each", second.flight.bytes, third.flight.bytes)
	}
}

// TestASnapshotWithNothingInFlightIsAcknowledgedOnce has its state stored before
// its barrier has left: there is nothing more to store.
func TestASnapshotWithNothingInFlightIsAcknowledgedOnce(t *testing.T) {
	host := &reports{}
	s := &Subtask{host: host, phase: running}
	x := &taken{flight: &flight{waiting: 1}, written: &snapshot.SubtaskState{}, writer: &snapshotWriter{}}
	x.barrier.Checkpoint = 1
	s.snapshot.open = []*taken{x}
	x.flight.waiting = 0
	s.flightChanged(x)
	for _, w := range host.work {
		s.Complete(w.Run(t.Context()))
	}
	acks := 0
	for _, r := range host.all {
		if _, ok := r.(AckReport); ok {
			acks++
		}
	}
	if acks != 1 || len(host.work) != 0 {
		t.Errorf("it was acknowledged %d times, after %d writes", acks, len(host.work))
	}
}

// TestOverlappingAlignmentsAreMeasuredEach has the barrier of the next checkpoint
// come before the last one of the first.
func TestOverlappingAlignmentsAreMeasuredEach(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &Subtask{cfg: Config{Clock: func() time.Time { return now }}}
	begin := func(id ids.CheckpointID) *taken { x := &taken{}; x.barrier.Checkpoint = id; return x }
	s.measureFrom(1)
	now = now.Add(2 * time.Second)
	s.bytesIn = 100
	s.measureFrom(2)
	s.measureFrom(1) // of another channel
	now = now.Add(time.Second)
	s.bytesIn = 150
	first := begin(1)
	s.measureTaken(first)
	now = now.Add(time.Second)
	second := begin(2)
	s.measureTaken(second)
	if a, b := first.stats, second.stats; a.Alignment != 3*time.Second || a.ProcessedBytes != 150 || b.Alignment != 2*time.Second || b.ProcessedBytes != 50 {
		t.Errorf("alignments of %s and %s, in which %d and %d bytes were processed", a.Alignment, b.Alignment, a.ProcessedBytes, b.ProcessedBytes)
	}
	for id := ids.CheckpointID(3); id < 100; id++ {
		s.measureFrom(id) // and is given up before it is taken
	}
	if n := len(s.snapshot.begun); n > begunMax {
		t.Errorf("%d beginnings are remembered", n)
	}
}
