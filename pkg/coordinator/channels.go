package coordinator

import (
	"fmt"
	"math"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
)

// subtaskFlight is what one subtask is restored with of the records in flight.
type subtaskFlight struct {
	inFlight   []RestoredInFlight
	watermarks []RestoredWatermark
}

// addInFlight puts what subtasks have acknowledged of records in flight into
// the checkpoint, and describes the edges if there may be any.
func (c *Coordinator) addInFlight(cc *snapshot.CompletedCheckpoint, acks []*snapshot.SubtaskState) {
	described := false
	for _, ack := range acks {
		cc.InFlight = append(cc.InFlight, ack.InFlight...)
		described = described || len(ack.InFlight) > 0 || len(ack.Emitted) > 0
	}
	if !described {
		return
	}
	cc.Edges = make([]snapshot.EdgeState, len(c.graph.Edges))
	lowest := make([]int64, len(c.graph.Edges))
	for i := range c.graph.Edges {
		e := &c.graph.Edges[i]
		cc.Edges[i] = snapshot.EdgeState{
			Name: c.graph.EdgeName(i), Type: e.Edge.Type, Partitioner: string(e.Edge.Partitioner),
			Producers: c.graph.Vertices[e.From].Parallelism, Consumers: c.graph.Vertices[e.To].Parallelism,
		}
		lowest[i] = math.MaxInt64
	}
	for _, ack := range acks {
		for _, w := range ack.Emitted {
			if w.Edge < len(lowest) && !w.Idle {
				lowest[w.Edge] = min(lowest[w.Edge], w.Watermark)
			}
		}
	}
	for i, w := range lowest {
		if w != math.MaxInt64 && w != math.MinInt64 {
			cc.Edges[i].Watermark, cc.Edges[i].HasWatermark = w, true
		}
	}
}

// routeInFlight says which subtask of the graph gets which records that were in
// flight, and on which channel.
//
//   - At unchanged parallelism they stay with the consumer they were on the way to.
//   - On a hash-partitioned edge whose consumer has another parallelism, every
//     subtask that owns some of the old consumer's key groups gets the part, and
//     takes the records with keys of its own: each record has one owner (I7).
//   - On a rebalanced edge, the parts of consumer i go to i mod parallelism; also if
//     the edge has become a forward one, as it does at equal parallelism.
//
// The parts of one channel are in the order in which it would have delivered
// them: what the consumer had before what waited at the producer. Channels
// begin at the lowest watermark that a producer had emitted, behind the records.
//
// With dropLost, what was in flight on edges that the program does not have any
// more is dropped, and their names returned. Errors are permanent.
func routeInFlight(cc *snapshot.CompletedCheckpoint, g *graph.ExecutionGraph, dropLost bool) (map[ids.SubtaskID]*subtaskFlight, []string, error) {
	routes, lost, err := edgeRoutes(cc, g, dropLost)
	if err != nil {
		return nil, nil, err
	}
	all := make(map[ids.SubtaskID]*subtaskFlight)
	of := func(id ids.SubtaskID) *subtaskFlight {
		if all[id] == nil {
			all[id] = &subtaskFlight{}
		}
		return all[id]
	}
	for _, output := range []bool{false, true} {
		for _, in := range cc.InFlight {
			parts := make(map[ids.SubtaskID][]RestoredPart)
			var order []ids.SubtaskID
			for _, p := range in.Parts {
				r := routes[p.Edge]
				if p.Output != output || r.edge < 0 {
					continue
				}
				first, last, rekey := r.consumers(int(p.Consumer))
				for consumer := first; consumer <= last; consumer++ {
					id := ids.SubtaskID{Vertex: g.Edges[r.edge].To, Index: int32(consumer)}
					if len(parts[id]) == 0 {
						order = append(order, id)
					}
					parts[id] = append(parts[id], RestoredPart{
						Channel: g.InputChannel(r.edge, p.Producer%int32(r.producers)), Offset: p.Offset, Length: p.Length, Rekey: rekey,
					})
				}
			}
			for _, id := range order {
				f := of(id)
				f.inFlight = append(f.inFlight, RestoredInFlight{Handle: in.Handle, Parts: parts[id]})
			}
		}
	}
	for i, e := range cc.Edges {
		r := routes[i]
		if r.edge < 0 || !e.HasWatermark {
			continue
		}
		for consumer := range r.toConsumers {
			f := of(ids.SubtaskID{Vertex: g.Edges[r.edge].To, Index: int32(consumer)})
			f.watermarks = append(f.watermarks, RestoredWatermark{Edge: r.edge, Watermark: e.Watermark})
		}
	}
	return all, lost, nil
}

// CheckInFlight says why the graph cannot take the records that were in flight
// in a checkpoint, or nil. With dropLost, those of edges that it does not have
// may go.
func CheckInFlight(cc *snapshot.CompletedCheckpoint, g *graph.ExecutionGraph, dropLost bool) error {
	_, _, err := edgeRoutes(cc, g, dropLost)
	return err
}

// edgeRoute leads from an edge of a checkpoint to that of the graph.
type edgeRoute struct {
	edge                                  int // -1: the graph has none
	producers, fromConsumers, toConsumers int
	byKey, wasByKey                       bool
	maxParallelism                        int
}

// consumers are the subtasks that get what was on its way to one.
func (r *edgeRoute) consumers(old int) (first, last int, rekey bool) {
	switch {
	case r.byKey && r.wasByKey && r.fromConsumers == r.toConsumers:
		return old, old, false
	case r.byKey && r.wasByKey:
		groups := keygroup.RangeOf(old, r.fromConsumers, r.maxParallelism)
		return keygroup.OwnerOf(groups.First, r.toConsumers, r.maxParallelism),
			keygroup.OwnerOf(groups.Last, r.toConsumers, r.maxParallelism), true
	case r.byKey:
		return 0, r.toConsumers - 1, true
	}
	i := old % r.toConsumers
	return i, i, false
}

// edgeRoutes finds the edges of a checkpoint in the graph.
func edgeRoutes(cc *snapshot.CompletedCheckpoint, g *graph.ExecutionGraph, dropLost bool) ([]*edgeRoute, []string, error) {
	byName := make(map[string]int, len(g.Edges))
	for i := range g.Edges {
		byName[g.EdgeName(i)] = i
	}
	used := make([]bool, len(cc.Edges))
	for _, in := range cc.InFlight {
		for _, p := range in.Parts {
			used[p.Edge] = true
		}
	}
	routes := make([]*edgeRoute, len(cc.Edges))
	var lost []string
	for i, old := range cc.Edges {
		r := &edgeRoute{edge: -1}
		routes[i] = r
		edge, ok := byName[old.Name]
		if !ok {
			if used[i] && !dropLost {
				return nil, nil, fmt.Errorf("records are in flight on %s, an edge that the program does not have, or that is inside of a chain at these "+
					"parallelisms: keep the parallelisms (%d to %d), restore from a savepoint, which has none in flight but in loops, or allow non-restored state to drop them",
					old.Name, old.Producers, old.Consumers)
			}
			if used[i] {
				lost = append(lost, old.Name)
			}
			continue
		}
		e := &g.Edges[edge]
		if used[i] && e.Edge.Type != old.Type {
			return nil, nil, fmt.Errorf("records in flight on %s are %s, and the program has %s there: change the program from a savepoint, "+
				"which has none in flight but in loops", old.Name, old.Type, e.Edge.Type)
		}
		spread := e.Edge.Partitioner == graph.Forward && old.Partitioner == string(graph.Rebalance)
		if used[i] && !spread && !e.Edge.Partitioner.MayOvertake() {
			return nil, nil, fmt.Errorf("records are in flight on %s, which is a %s edge in the program and was %s: "+
				"nobody can say whose they are; change the program from a savepoint", old.Name, e.Edge.Partitioner, old.Partitioner)
		}
		*r = edgeRoute{
			edge: edge, producers: g.Vertices[e.From].Parallelism, fromConsumers: old.Consumers, toConsumers: g.Vertices[e.To].Parallelism,
			byKey: e.Edge.Partitioner == graph.Hash, wasByKey: old.Partitioner == string(graph.Hash), maxParallelism: g.MaxParallelism,
		}
	}
	return routes, lost, nil
}
