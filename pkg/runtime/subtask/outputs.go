package subtask

import (
	"slices"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
)

// outputs holds the credit of every output channel and the frames that wait
// for it. A frame of records is sent while the channel's credit is above 0,
// so a channel may overdraw by one frame at most; control elements need no
// credit but keep their place behind waiting records.
type outputs struct {
	s     *Subtask
	edges [][]outputChannel
	// waiting is the number of channels with frames that wait for credit.
	waiting   int
	bytes     int64
	overdraft int64
	// overtakable are the edges on which a barrier may overtake records; of names
	// the channels in snapshots.
	overtakable []bool
	of          [][]snapshot.ChannelPart
}

type outputChannel struct {
	credit int64
	// queue waits for credit. It holds what one record emitted beyond the
	// credit, and the barriers behind that: the subtask yields before the next
	// record, the checkpoints under way are few, and those given up are forgotten.
	queue []element.Frame
}

var _ operator.Outbox = (*outputs)(nil)

func (o *outputs) init(s *Subtask, channels [][]graph.OutputChannel, overtakable []bool) {
	o.s = s
	o.edges = make([][]outputChannel, len(channels))
	o.overtakable = make([]bool, len(channels))
	o.of = make([][]snapshot.ChannelPart, len(channels))
	for i := range channels {
		edge := s.cfg.Graph.Vertices[s.id.Vertex].Outputs[i]
		o.overtakable[i] = overtakable[edge]
		o.edges[i] = make([]outputChannel, len(channels[i]))
		o.of[i] = make([]snapshot.ChannelPart, len(channels[i]))
		for ch, c := range channels[i] {
			o.of[i][ch] = snapshot.ChannelPart{Edge: edge, Producer: s.id.Index, Consumer: c.To.Index, Output: true}
		}
	}
}

// NewBuffer implements operator.Outbox.
func (o *outputs) NewBuffer() ([]byte, element.Owner) {
	if o.s.cfg.NewBuffer != nil {
		return o.s.cfg.NewBuffer()
	}
	return make([]byte, 0, operator.CutBytes+operator.CutBytes/8), nil
}

// cutBytesMin is the smallest batch: a consumer that takes no more at a time is
// so slow that the cost of a frame does not matter.
const cutBytesMin = 512

// CutAt implements operator.Outbox. A batch larger than the credit would put
// more in front of a slow consumer than it asked for.
func (o *outputs) CutAt(edge, ch int) int {
	return int(min(max(o.edges[edge][ch].credit, cutBytesMin), operator.CutBytes))
}

// Emit implements operator.Outbox.
func (o *outputs) Emit(edge, ch int, f element.Frame) {
	if o.s.isOver() {
		f.Free()
		return
	}
	c := &o.edges[edge][ch]
	if len(c.queue) > 0 || f.Kind == element.Records && c.credit <= 0 {
		if len(c.queue) == 0 {
			o.waiting++
			o.s.pace.SetBlocked(true)
		}
		if n := len(c.queue); n > 0 && f.Kind == element.WatermarkKind && c.queue[n-1].Kind == element.WatermarkKind {
			c.queue[n-1] = f // the newer one says all that the older did
			return
		}
		o.overdraft += int64(len(f.Data))
		c.queue = append(c.queue, f)
		return
	}
	o.send(edge, ch, c, f)
}

func (o *outputs) send(edge, ch int, c *outputChannel, f element.Frame) {
	n := int64(len(f.Data))
	c.credit -= n
	o.bytes += n
	o.s.host.Send(Output{Edge: edge, Channel: ch}, f)
}

func (o *outputs) addCredit(out Output, bytes int64) {
	c := &o.edges[out.Edge][out.Channel]
	c.credit += bytes
	if len(c.queue) == 0 {
		return
	}
	sent := 0
	for _, f := range c.queue {
		if f.Kind == element.Records && c.credit <= 0 {
			break
		}
		if f.Kind == element.BarrierKind && o.overtakable[out.Edge] {
			f.Barrier = o.s.barrierLeaves(f.Barrier)
		}
		o.send(out.Edge, out.Channel, c, f)
		sent++
	}
	n := copy(c.queue, c.queue[sent:])
	clear(c.queue[n:])
	c.queue = c.queue[:n]
	if n == 0 {
		o.waiting--
		o.s.pace.SetBlocked(o.waiting > 0)
	}
}

// barrier puts a barrier on every channel: behind what was collected, or if it
// overtakes in front of what waits for credit, which is then part of the
// snapshot. If it may overtake later, the snapshot waits until it has left.
func (o *outputs) barrier(b element.Barrier, f *flight) {
	o.flush()
	frame := element.BarrierFrame(b)
	for e := range o.edges {
		for ch := range o.edges[e] {
			c := &o.edges[e][ch]
			switch {
			case len(c.queue) == 0 || !o.overtakable[e]:
				o.Emit(e, ch, frame)
			case b.Alignment == element.Unaligned:
				f.overtake(o.of[e][ch], c.queue)
				o.send(e, ch, c, frame)
			case b.Alignment == element.Aligned && b.AlignedTimeout > 0:
				f.waiting++
				o.Emit(e, ch, frame)
			default:
				o.Emit(e, ch, frame)
			}
		}
	}
}

// overtake lets a barrier that waits behind records go in front of them.
func (o *outputs) overtake(b element.Barrier, f *flight) {
	b.Alignment = element.Unaligned
	for e := range o.edges {
		if !o.overtakable[e] {
			continue
		}
		for ch := range o.edges[e] {
			c := &o.edges[e][ch]
			at := slices.IndexFunc(c.queue, func(x element.Frame) bool {
				return x.Kind == element.BarrierKind && x.Barrier.Checkpoint == b.Checkpoint
			})
			if at < 0 {
				continue // it has left
			}
			f.overtake(o.of[e][ch], c.queue[:at])
			c.queue = slices.Delete(c.queue, at, at+1)
			o.send(e, ch, c, element.BarrierFrame(b))
		}
	}
	f.waiting = 0
}

// forget drops what waits for credit of a checkpoint that was given up. The
// coordinator tells everybody; and an output may go without credit for so long that
// any number of checkpoints are given up meanwhile.
func (o *outputs) forget(id ids.CheckpointID) {
	if o.waiting == 0 {
		return
	}
	for e := range o.edges {
		for ch := range o.edges[e] {
			c := &o.edges[e][ch]
			// The first frame stays: it is of records, which the others wait behind.
			kept := c.queue[:0]
			for _, f := range c.queue {
				isControl := f.Kind == element.BarrierKind || f.Kind == element.CancelMarkerKind
				n := len(kept)
				switch {
				case isControl && f.Barrier.Checkpoint == id:
				case n > 0 && f.Kind == element.WatermarkKind && kept[n-1].Kind == element.WatermarkKind:
					kept[n-1] = f
				default:
					kept = append(kept, f)
				}
			}
			clear(c.queue[len(kept):])
			c.queue = kept
		}
	}
}

// broadcast puts a control element on every channel, behind what was collected.
func (o *outputs) broadcast(f element.Frame) {
	o.flush()
	for e := range o.edges {
		for ch := range o.edges[e] {
			o.Emit(e, ch, f)
		}
	}
}

// flush cuts everything collected.
func (o *outputs) flush() {
	for _, w := range o.s.chain.Writers {
		w.Flush()
	}
}

// flushOpen cuts what was collected for the channels that have credit. The
// others could only let it wait.
func (o *outputs) flushOpen() {
	for e, w := range o.s.chain.Writers {
		for ch := range o.edges[e] {
			if c := &o.edges[e][ch]; len(c.queue) == 0 && c.credit > 0 {
				w.Cut(ch)
			}
		}
	}
}

func (o *outputs) drop() {
	for e := range o.edges {
		for ch := range o.edges[e] {
			c := &o.edges[e][ch]
			for i := range c.queue {
				c.queue[i].Free()
			}
			c.queue = nil
		}
	}
	o.waiting = 0
	o.s.pace.SetBlocked(false)
}
