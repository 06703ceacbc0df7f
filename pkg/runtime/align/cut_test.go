package align_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/align"
)

// item is a record, numbered on its channel from 1, or a barrier.
type item struct {
	record  int
	barrier element.Barrier
}

// cutModel is a subtask that remembers how many records of each channel it has
// processed, and does with its queues what the aligner says.
type cutModel struct {
	t     *rapid.T
	a     *align.Aligner
	kinds []align.ChannelKind
	// coming are the items still on their way, queued those that have arrived.
	coming, queued [][]item
	processed      []int
	blocked        []bool
	armed          map[ids.CheckpointID]bool
	open           map[ids.CheckpointID]*cut
	done           map[ids.CheckpointID]*cut
	aborted        map[ids.CheckpointID]bool
	// last is the number of the last record in front of each barrier, by channel.
	last map[ids.CheckpointID][]int
}

// cut is a snapshot: the state, and the records that were collected.
type cut struct {
	state     []int
	collected [][]int
	arrived   []bool
}

// TestI2TheCutIsConsistent moves records and barriers through queues at random,
// in all modes and with all kinds of channel, and requires of every completed
// checkpoint that its state and its collected records together are what was in
// front of the barriers, once each.
func TestI2TheCutIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newCutModel(t)
		for !m.isDone() {
			m.step()
		}
		for id := range m.last {
			if m.done[id] == nil && !m.aborted[id] {
				t.Fatalf("checkpoint %d was neither completed nor given up", id)
			}
		}
	})
}

func newCutModel(t *rapid.T) *cutModel {
	m := &cutModel{
		t: t, armed: map[ids.CheckpointID]bool{}, open: map[ids.CheckpointID]*cut{}, done: map[ids.CheckpointID]*cut{},
		aborted: map[ids.CheckpointID]bool{}, last: map[ids.CheckpointID][]int{},
	}
	for range rapid.IntRange(1, 4).Draw(t, "forward channels") {
		m.kinds = append(m.kinds, rapid.SampledFrom([]align.ChannelKind{align.Overtakable, align.Overtakable, align.InOrder}).Draw(t, "kind"))
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "feedback channels") {
		m.kinds = append(m.kinds, align.Feedback)
	}
	m.a = align.New(m.kinds)
	n := len(m.kinds)
	m.coming, m.queued, m.processed, m.blocked = make([][]item, n), make([][]item, n), make([]int, n), make([]bool, n)
	barriers := m.drawBarriers()
	records := make([]int, n)
	for _, b := range barriers {
		m.last[b.Checkpoint] = make([]int, n)
		for ch := range n {
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				records[ch]++
				m.coming[ch] = append(m.coming[ch], item{record: records[ch]})
			}
			m.last[b.Checkpoint][ch] = records[ch]
			m.coming[ch] = append(m.coming[ch], item{barrier: b})
		}
	}
	return m
}

// drawBarriers gives those of one job: aligned ones beside savepoints, at least
// once, or unaligned ones, of which the next begins when the last is over.
func (m *cutModel) drawBarriers() []element.Barrier {
	b := element.Barrier{Alignment: rapid.SampledFrom([]element.Alignment{element.Aligned, element.AtLeastOnce, element.Unaligned}).Draw(m.t, "alignment")}
	if b.Alignment == element.Aligned {
		b.AlignedTimeout = rapid.SampledFrom([]int64{0, 5}).Draw(m.t, "timeout")
	}
	var all []element.Barrier
	for i := range rapid.IntRange(1, 4).Draw(m.t, "checkpoints") {
		b.Checkpoint = ids.CheckpointID(i + 1)
		next := b
		if i > 0 && b.Alignment != element.AtLeastOnce {
			// Only a savepoint may follow one that overtakes.
			next.Alignment, next.AlignedTimeout = element.Aligned, 0
		}
		all = append(all, next)
	}
	return all
}

func (m *cutModel) isDone() bool {
	for ch := range m.kinds {
		if len(m.coming[ch])+len(m.queued[ch]) > 0 {
			return false
		}
	}
	return true
}

func (m *cutModel) step() {
	type move struct {
		kind string
		ch   int
	}
	var moves []move
	for ch := range m.kinds {
		if len(m.coming[ch]) > 0 {
			moves = append(moves, move{"arrive", ch})
		}
		if len(m.queued[ch]) > 0 && !m.blocked[ch] {
			moves = append(moves, move{"deliver", ch}, move{"deliver", ch})
		}
	}
	for id := range m.armed {
		moves = append(moves, move{"timeout", int(id)})
	}
	slices.SortFunc(moves, func(x, y move) int { // maps have no order
		return slices.Compare([]int{int(x.kind[0]), x.ch}, []int{int(y.kind[0]), y.ch})
	})
	if len(moves) == 0 {
		m.t.Fatal("nothing can move: the alignment hangs")
	}
	if rapid.IntRange(0, 30).Draw(m.t, "abort?") == 0 {
		id := ids.CheckpointID(rapid.IntRange(1, len(m.last)).Draw(m.t, "aborted"))
		if m.done[id] == nil {
			m.aborted[id] = true
			m.act(m.a.Abort(id))
			return
		}
	}
	x := rapid.SampledFrom(moves).Draw(m.t, "move")
	switch x.kind {
	case "arrive":
		m.arrive(x.ch)
	case "deliver":
		m.deliver(x.ch)
	case "timeout":
		delete(m.armed, ids.CheckpointID(x.ch))
		m.act(m.a.Timeout(ids.CheckpointID(x.ch)))
	}
}

// arrive brings the next item of a channel into its queue.
func (m *cutModel) arrive(ch int) {
	x := m.coming[ch][0]
	m.coming[ch] = m.coming[ch][1:]
	m.queued[ch] = append(m.queued[ch], x)
	if x.record > 0 {
		for _, c := range m.open {
			if !c.arrived[ch] {
				c.collected[ch] = append(c.collected[ch], x.record)
			}
		}
		return
	}
	if c := m.open[x.barrier.Checkpoint]; c != nil {
		c.arrived[ch] = true
	}
	m.act(m.a.Arrived(ch, x.barrier))
}

func (m *cutModel) deliver(ch int) {
	x := m.queued[ch][0]
	m.queued[ch] = m.queued[ch][1:]
	if x.record > 0 {
		if x.record != m.processed[ch]+1 {
			m.t.Fatalf("channel %d delivered record %d after %d", ch, x.record, m.processed[ch])
		}
		m.processed[ch] = x.record
		return
	}
	m.act(m.a.Barrier(ch, x.barrier))
}

func (m *cutModel) act(actions []align.Action) {
	for _, x := range actions {
		id := x.Barrier.Checkpoint
		switch x.Kind {
		case align.Block:
			m.blocked[x.Channel] = true
		case align.Release:
			for ch := range m.blocked {
				m.blocked[ch] = m.a.IsBlocked(ch)
			}
		case align.Arm:
			m.armed[id] = true
		case align.Snapshot:
			delete(m.armed, id)
			m.snapshot(x)
		case align.Collected:
			m.complete(id, x.Barrier)
		case align.Abandon:
			if !m.aborted[id] {
				m.t.Fatalf("checkpoint %d is abandoned although nobody aborted it: %s", id, x.Reason)
			}
			delete(m.open, id)
			delete(m.armed, id)
		}
	}
	for ch := range m.kinds {
		if m.blocked[ch] != m.a.IsBlocked(ch) {
			m.t.Fatalf("channel %d: actions say blocked=%t, IsBlocked says %t", ch, m.blocked[ch], m.a.IsBlocked(ch))
		}
	}
}

// snapshot freezes the state and collects what is in front of the barriers.
func (m *cutModel) snapshot(x align.Action) {
	id := x.Barrier.Checkpoint
	c := &cut{state: slices.Clone(m.processed), collected: make([][]int, len(m.kinds)), arrived: make([]bool, len(m.kinds))}
	for ch, kind := range m.kinds {
		if kind != align.Feedback && (kind == align.InOrder || x.Barrier.Alignment != element.Unaligned) {
			c.arrived[ch] = true
			continue
		}
		if x.Delivered[ch] {
			c.arrived[ch] = true
			continue
		}
		for _, queued := range m.queued[ch] {
			if queued.barrier.Checkpoint == id {
				c.arrived[ch] = true
				break
			}
			if queued.record > 0 {
				c.collected[ch] = append(c.collected[ch], queued.record)
			}
		}
	}
	m.open[id] = c
	if !x.Collect {
		m.complete(id, x.Barrier)
	}
}

func (m *cutModel) complete(id ids.CheckpointID, b element.Barrier) {
	c := m.open[id]
	if c == nil {
		m.t.Fatalf("checkpoint %d is complete and was not taken", id)
	}
	delete(m.open, id)
	m.done[id] = c
	for ch := range m.kinds {
		have := append([]int{}, c.collected[ch]...)
		for n := 1; n <= c.state[ch]; n++ {
			have = append(have, n)
		}
		slices.Sort(have)
		var want []int
		for n := 1; n <= m.last[id][ch]; n++ {
			want = append(want, n)
		}
		if b.Alignment == element.AtLeastOnce {
			have = have[:min(len(have), len(want))] // more may be in the state
		}
		if !slices.Equal(have, want) {
			m.t.Fatal(fmt.Sprintf("checkpoint %d (%s), %s channel %d: has %v of %v", id, b.Alignment, m.kinds[ch], ch, have, want))
		}
	}
}
