package watermark

import (
	"maps"
	"slices"
)

// NoSplit stands for the split of records that do not come straight from a source.
const NoSplit = -1

// Generator makes the watermarks of one subtask from the timestamps of its
// records: the highest so far less the delay, which is how late a record may
// be. Splits of a source are read one after the other, and each has its own
// highest timestamp; while one has not been read yet, nothing is promised.
type Generator struct {
	delay    int64
	idleness int64 // milliseconds without a record until idle; 0 for never

	split   int64
	highest int64 // of split
	out     int64

	idle       bool
	seen       bool  // a record since the last tick
	quietSince int64 // the first tick since which there was no record; None for none

	// restored are the highest timestamps of splits that have not been begun
	// again since the restore. They are in every snapshot until then.
	restored map[int64]int64
}

// NewGenerator makes a generator. Both times are in milliseconds.
func NewGenerator(delay, idleness int64) *Generator {
	return &Generator{delay: delay, idleness: idleness, split: NoSplit, highest: None, out: None, quietSince: None}
}

// Record takes the timestamp of a record, and reports whether it ends an idle time.
func (g *Generator) Record(split, timestamp int64) (wasIdle bool) {
	if split != g.split {
		g.begin(split)
	}
	g.highest = max(g.highest, timestamp)
	g.seen = true
	wasIdle = g.idle
	g.idle = false
	return wasIdle
}

func (g *Generator) begin(split int64) {
	g.split, g.highest = split, None
	if t, ok := g.restored[split]; ok {
		g.highest = t
		delete(g.restored, split)
	}
}

// Tick brings watermark and idleness up to date; now is processing time in
// milliseconds. quiet says that since the last tick the subtask has waited for
// input all the time: while it is out of credit or aligns, it is not idle,
// whatever the clock says (I11). held says that splits wait to be read.
func (g *Generator) Tick(now, split int64, quiet, held bool) {
	if split != g.split {
		g.begin(split)
	}
	switch {
	case g.seen || !quiet:
		g.quietSince = None
	case g.quietSince == None:
		g.quietSince = now
	case g.idleness > 0 && now-g.quietSince >= g.idleness:
		g.idle = true
	}
	g.seen = false
	if held || g.highest == None {
		return
	}
	w := g.highest - g.delay
	if w > g.highest { // below the first time there is
		w = None
	}
	g.out = max(g.out, min(w, Max-1)) // Max is for the end of data
}

// Watermark is the watermark as of the last tick.
func (g *Generator) Watermark() int64 { return g.out }

// Idle reports whether there has been no record for so long that others must
// not wait for this subtask.
func (g *Generator) Idle() bool { return g.idle }

// SplitTime is the highest timestamp of a split.
type SplitTime struct{ Split, Highest int64 }

// Snapshot returns what Restore needs, in the order of splits.
func (g *Generator) Snapshot() []SplitTime {
	var out []SplitTime
	for _, split := range slices.Sorted(maps.Keys(g.restored)) {
		if split != g.split {
			out = append(out, SplitTime{split, g.restored[split]})
		}
	}
	if g.highest != None {
		out = append(out, SplitTime{g.split, g.highest})
		slices.SortFunc(out, func(a, b SplitTime) int { return int(a.Split - b.Split) })
	}
	return out
}

// Restore gives the generator the times of a snapshot. Of several for one
// split, as there are after a rescale of a generator that is not at a source,
// the lowest counts.
func (g *Generator) Restore(times []SplitTime) {
	g.restored = make(map[int64]int64, len(times))
	for _, t := range times {
		if had, ok := g.restored[t.Split]; ok {
			t.Highest = min(t.Highest, had)
		}
		g.restored[t.Split] = t.Highest
	}
	g.begin(g.split)
}
