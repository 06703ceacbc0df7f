package subtask

import (
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
)

// An output may wait for credit while any number of checkpoints come and are
// given up.
func TestGivenUpCheckpointsDoNotPileUpBehindABlockedOutput(t *testing.T) {
	s := &Subtask{}
	o := &s.out
	o.s, o.edges = s, [][]outputChannel{make([]outputChannel, 2)}
	o.Emit(0, 1, element.Frame{Kind: element.Records, Data: []byte{1}})
	const kept = ids.CheckpointID(50)
	for id := range ids.CheckpointID(100) {
		o.Emit(0, 1, element.BarrierFrame(element.Barrier{Checkpoint: id}))
		o.Emit(0, 1, element.Frame{Kind: element.WatermarkKind, Watermark: int64(id)})
		if id != kept {
			o.Emit(0, 1, element.CancelFrame(id))
			o.forget(id)
		}
	}
	q := o.edges[0][1].queue
	if len(q) != 4 || q[0].Kind != element.Records || q[1].Watermark != int64(kept-1) || q[2].Barrier.Checkpoint != kept || q[3].Watermark != 99 {
		t.Errorf("%d frames wait: %v", len(q), q)
	}
	if o.waiting != 1 {
		t.Errorf("%d channels wait", o.waiting)
	}
}
