package task

import (
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// Metrics are counters since the task started.
type Metrics struct {
	subtask.Metrics
	// Busy is the time spent in the subtask's code; Backpressured the time
	// that it waited for credit.
	Busy, Backpressured time.Duration
}

// published is the latest metrics for other goroutines to read. Only the
// task's goroutine writes; a reader may see the counters of two steps.
type published struct {
	recordsIn, recordsOut, bytesIn, bytesOut, overdraft, spilled atomic.Int64
	busy, backpressured                                          atomic.Int64
}

func (p *published) publish(m subtask.Metrics, busy time.Duration) {
	p.recordsIn.Store(m.RecordsIn)
	p.recordsOut.Store(m.RecordsOut)
	p.bytesIn.Store(m.BytesIn)
	p.bytesOut.Store(m.BytesOut)
	p.overdraft.Store(m.OverdraftBytes)
	p.spilled.Store(m.SpilledBytes)
	p.busy.Add(int64(busy))
}

func (p *published) addBackpressured(d time.Duration) { p.backpressured.Add(int64(d)) }

// Metrics counts what has passed up to the last step.
func (t *Task) Metrics() Metrics {
	p := &t.metrics
	return Metrics{
		Metrics: subtask.Metrics{
			RecordsIn: p.recordsIn.Load(), RecordsOut: p.recordsOut.Load(),
			BytesIn: p.bytesIn.Load(), BytesOut: p.bytesOut.Load(), OverdraftBytes: p.overdraft.Load(),
			SpilledBytes: p.spilled.Load(),
		},
		Busy: time.Duration(p.busy.Load()), Backpressured: time.Duration(p.backpressured.Load()),
	}
}
