package watermark

import (
	"math"
	"slices"
)

// The ends of event time.
const (
	// None is the watermark before any: it promises nothing.
	None = math.MinInt64
	// Max is the watermark behind the last record.
	Max = math.MaxInt64
)

// Valve combines the watermarks of the input channels of one subtask: its own
// is the minimum over the channels that are active. A channel takes part from
// the first moment, so one that has not said anything yet holds the watermark
// back; only one that said that it is idle, or has ended, does not. The
// result never goes back.
type Valve struct {
	channels []channel
	out      int64
	idle     bool
}

type channel struct {
	watermark   int64
	idle, ended bool
}

// NewValve makes the valve of a subtask with that many input channels.
func NewValve(channels int) *Valve {
	v := &Valve{channels: make([]channel, channels), out: None}
	for i := range v.channels {
		v.channels[i].watermark = None
	}
	return v
}

// Current is the combined watermark, and whether all channels that have not
// ended are idle.
func (v *Valve) Current() (watermark int64, idle bool) { return v.out, v.idle }

// IsAtEnd reports whether event time has come to its end on all channels: an
// idle one that has not may still deliver something.
func (v *Valve) IsAtEnd() bool {
	return !slices.ContainsFunc(v.channels, func(c channel) bool { return !c.ended && c.watermark != Max })
}

// Watermark takes the watermark of a channel. One that goes back, as the
// first ones after a restore may, is ignored.
func (v *Valve) Watermark(ch int, watermark int64) {
	c := &v.channels[ch]
	c.watermark = max(c.watermark, watermark)
	v.combine()
}

// Status takes the status of a channel. One that becomes active takes part at
// once, with the last watermark it gave.
func (v *Valve) Status(ch int, idle bool) {
	v.channels[ch].idle = idle
	v.combine()
}

// End says that no record of the channel follows.
func (v *Valve) End(ch int) {
	v.channels[ch].ended = true
	v.combine()
}

func (v *Valve) combine() {
	lowest, highest := int64(Max), int64(None)
	open, active := 0, 0
	for i := range v.channels {
		c := &v.channels[i]
		if c.ended {
			continue
		}
		open++
		highest = max(highest, c.watermark)
		if !c.idle {
			active++
			lowest = min(lowest, c.watermark)
		}
	}
	v.idle = open > 0 && active == 0
	if v.idle {
		// As if they had become idle one after the other, that with the
		// highest watermark last.
		lowest = highest
	}
	v.out = max(v.out, lowest)
}
