package subtask

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
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
