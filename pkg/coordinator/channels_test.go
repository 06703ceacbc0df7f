package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
)

// fataler is a test or a property.
type fataler interface{ Fatal(args ...any) }

// flightGraph is source -partitioner-> op -forward-> sink.
func flightGraph(t fataler, partitioner graph.Partitioner, typ string, producers, consumers int) graph.ExecutionGraph {
	g, err := graph.Expand(graph.JobGraph{
		Name: "flight", MaxParallelism: 16,
		Operators: []graph.Operator{
			{UID: "in", Kind: graph.SourceOperator, Parallelism: producers},
			{UID: "op", Kind: graph.ProcessOperator, Parallelism: consumers, KeyType: "uint64"},
			{UID: "out", Kind: graph.SinkOperator, Parallelism: consumers, ChainingDisabled: true},
		},
		Edges: []graph.Edge{
			{From: "in", To: "op", Partitioner: partitioner, Type: typ},
			{From: "op", To: "out", Partitioner: graph.Forward, Type: typ},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flightCheckpoint has one part for each channel of the first edge and each side.
func flightCheckpoint(g *graph.ExecutionGraph) *snapshot.CompletedCheckpoint {
	c := &Coordinator{graph: *g, layout: newLayout(g)}
	var acks []*snapshot.SubtaskState
	offset := int64(0)
	file := func(name string, parts []snapshot.ChannelPart) snapshot.InFlight {
		return snapshot.InFlight{Handle: snapshot.StateHandle{Name: name, Size: 1 << 20}, Parts: parts}
	}
	for p := range g.Vertices[0].Parallelism {
		ack := &snapshot.SubtaskState{Subtask: ids.SubtaskID{Index: int32(p)}, Emitted: []snapshot.EmittedWatermark{{Watermark: int64(100 + p)}}}
		var parts []snapshot.ChannelPart
		for to := range g.Vertices[1].Parallelism {
			parts = append(parts, snapshot.ChannelPart{Producer: int32(p), Consumer: int32(to), Output: true, Offset: offset, Length: 10})
			offset += 10
		}
		ack.InFlight = []snapshot.InFlight{file(fmt.Sprintf("out-%d", p), parts)}
		acks = append(acks, ack)
	}
	for to := range g.Vertices[1].Parallelism {
		var parts []snapshot.ChannelPart
		for p := range g.Vertices[0].Parallelism {
			parts = append(parts, snapshot.ChannelPart{Producer: int32(p), Consumer: int32(to), Offset: offset, Length: 10})
			offset += 10
		}
		acks = append(acks, &snapshot.SubtaskState{
			Subtask: ids.SubtaskID{Vertex: 1, Index: int32(to)}, InFlight: []snapshot.InFlight{file(fmt.Sprintf("in-%d", to), parts)},
		})
	}
	cc := &snapshot.CompletedCheckpoint{ID: 3}
	c.addInFlight(cc, acks)
	return cc
}

// TestI7RecordsInFlightHaveOneOwner gives away what was in flight at random
// parallelisms: every key group of every part goes to the subtask that owns the
// group, once, on a channel that it has, and what the consumer had comes before
// what waited at the producer.
func TestI7RecordsInFlightHaveOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) int { return rapid.IntRange(1, 9).Draw(t, name) }
		partitioner := rapid.SampledFrom([]graph.Partitioner{graph.Hash, graph.Rebalance}).Draw(t, "partitioner")
		old := flightGraph(t, partitioner, "T", draw("old producers"), draw("old consumers"))
		now := flightGraph(t, partitioner, "T", draw("producers"), draw("consumers"))
		cc := flightCheckpoint(&old)
		routed, lost, err := routeInFlight(cc, &now, false)
		if err != nil || len(lost) > 0 {
			t.Fatal(err, lost)
		}
		type owned struct {
			offset int64
			group  keygroup.Group
		}
		owner := map[owned]int32{}
		consumers := now.Vertices[1].Parallelism
		byOffset := map[int64]snapshot.ChannelPart{}
		for _, f := range cc.InFlight {
			for _, p := range f.Parts {
				byOffset[p.Offset] = p
			}
		}
		for id, f := range routed {
			if id.Vertex != 1 || int(id.Index) >= consumers {
				t.Fatalf("records are given to subtask %s", id)
			}
			own := keygroup.RangeOf(int(id.Index), consumers, 16)
			type channel struct{ producer, consumer int32 }
			outputSeen := map[channel]bool{}
			for _, in := range f.inFlight {
				for _, p := range in.Parts {
					part := byOffset[p.Offset]
					at := channel{part.Producer, part.Consumer}
					if outputSeen[at] && !part.Output {
						t.Fatalf("what %v had at the consumer comes behind what waited at the producer", at)
					}
					outputSeen[at] = part.Output
					if p.Channel < 0 || p.Channel >= len(now.InputChannels(1, id.Index)) {
						t.Fatalf("subtask %s has no channel %d", id, p.Channel)
					}
					had := keygroup.RangeOf(int(part.Consumer), old.Vertices[1].Parallelism, 16)
					for g := had.First; g <= had.Last; g++ {
						if p.Rekey && !own.Contains(g) {
							continue
						}
						if first, twice := owner[owned{p.Offset, g}]; twice {
							t.Fatalf("group %d of the part at %d is given to %d and %d", g, p.Offset, first, id.Index)
						}
						owner[owned{p.Offset, g}] = id.Index
						if partitioner == graph.Hash && !own.Contains(g) {
							t.Fatalf("group %d is given to subtask %s, which owns %s", g, id, own)
						}
					}
				}
			}
			if len(f.watermarks) != 1 || f.watermarks[0].Watermark != 100 {
				t.Fatalf("subtask %s begins at watermarks %v, want the lowest, 100", id, f.watermarks)
			}
		}
		for offset, part := range byOffset {
			had := keygroup.RangeOf(int(part.Consumer), old.Vertices[1].Parallelism, 16)
			for g := had.First; g <= had.Last; g++ {
				if _, ok := owner[owned{offset, g}]; !ok {
					t.Fatalf("group %d of the part at %d is given to nobody", g, offset)
				}
			}
		}
	})
}

func TestRecordsInFlightNeedTheirEdge(t *testing.T) {
	old := flightGraph(t, graph.Hash, "T", 2, 2)
	cc := flightCheckpoint(&old)
	for what, now := range map[string]graph.ExecutionGraph{
		"are T, and the program has U there": flightGraph(t, graph.Hash, "U", 2, 2),
		"which is a broadcast edge":          flightGraph(t, graph.Broadcast, "T", 2, 2),
	} {
		if _, _, err := routeInFlight(cc, &now, true); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %q", err, what)
		}
	}
	// What was dealt out may go to anybody: also on a forward edge, if that is not
	// inside of a chain.
	dealt := flightGraph(t, graph.Rebalance, "T", 3, 2)
	forward := flightGraph(t, graph.Rebalance, "T", 2, 2)
	forward.Edges[0].Edge.Partitioner = graph.Forward
	routed, _, err := routeInFlight(flightCheckpoint(&dealt), &forward, false)
	if err != nil || len(routed) != 2 {
		t.Errorf("%d subtasks get what was dealt out, %v", len(routed), err)
	}
	for id, f := range routed {
		for _, in := range f.inFlight {
			for _, p := range in.Parts {
				if p.Channel != 0 || p.Rekey {
					t.Errorf("subtask %s gets %+v", id, p)
				}
			}
		}
	}
	gone := flightGraph(t, graph.Hash, "T", 2, 2)
	gone.Edges[0].Edge.Input = 1
	if _, _, err := routeInFlight(cc, &gone, false); err == nil || !strings.Contains(err.Error(), "in[] -> op[0], an edge that the program does not have") {
		t.Errorf("error %v", err)
	}
	var lost []string
	routed, lost, err = routeInFlight(cc, &gone, true)
	if err != nil || len(routed) > 0 || len(lost) != 1 || lost[0] != "in[] -> op[0]" {
		t.Errorf("dropped: %v, lost %v, error %v", routed, lost, err)
	}
}
