package sim

import (
	"strings"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// I11: blocked is not idle. A source is idle when it has waited for input, and
// for nothing else, for as long as its idleness says. (That no record is late
// where there is no idleness is checked in the job.)

// idling is what is known of how busy a subtask was.
type idling struct {
	// took: a record was taken in this step.
	took bool
	// progress is how the last step ended, busy the time of Advance at which it
	// last had something to do.
	progress subtask.Progress
	busy     int64
}

// noteProgress follows a step.
func (h *host) noteProgress(progress subtask.Progress) {
	if h.took || isBusy(h.progress) || isBusy(progress) {
		h.busy = h.told
	}
	h.took, h.progress = false, progress
}

func isBusy(p subtask.Progress) bool { return p == subtask.Blocked || p == subtask.More }

// observeGenerators watches the operators that make watermarks.
func (c *cluster) observeGenerators(p *operator.Program) {
	for uid, node := range p.Nodes {
		if !strings.HasPrefix(string(uid), simjob.Stamps) {
			continue
		}
		inner := node.New
		node.New = func(out func(string) any) (operator.Instance, error) {
			inst, err := inner(out)
			inst.Generator = &watchedGenerator{WatermarkGenerator: inst.Generator, c: c}
			return inst, err
		}
	}
}

// watchedGenerator checks when its subtask becomes idle.
type watchedGenerator struct {
	operator.WatermarkGenerator
	c *cluster
}

// Tick implements operator.WatermarkGenerator.
func (w *watchedGenerator) Tick(quiet bool) {
	c := w.c
	h := c.stepped
	was, before := w.IsIdle(), w.Watermark()
	w.WatermarkGenerator.Tick(quiet || c.plant == BlockedIsIdle)
	if w.Watermark() < before {
		c.fail("I11", "%s: its watermark went back from %d to %d", h.name, before, w.Watermark())
	}
	if was || !w.IsIdle() {
		return
	}
	c.result.Idle++
	idleness := h.x.job.options.Idleness.Milliseconds()
	if quiet := h.told - h.busy; isBusy(h.progress) || quiet < idleness {
		c.fail("I11", "%s is idle, it had something to do %d ms ago and its idleness is %d ms", h.name, quiet, idleness)
	}
}
