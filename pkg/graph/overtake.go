package graph

// MayOvertake reports whether a barrier may overtake records of such an edge. On
// the others each record is for the one consumer that it is on its way to: after
// a rescale nobody could say whose it is. Of those on which it may, some edges
// align all the same: see ExecutionGraph.OvertakableEdges.
func (p Partitioner) MayOvertake() bool { return p == Hash || p == Rebalance }

// OvertakableEdges says for each edge whether a barrier may overtake records on it.
//
// A vertex with an edge that always aligns cannot take its snapshot before it has
// processed what is in front of the barrier there. If it is to wait at one such
// vertex, at another, further down, channels may be blocked until its barrier
// comes. A barrier that overtook between the two, without waiting for the first,
// would let the second block the very path that the first must send records to:
// each would wait for the other. So on the way from a vertex that must process
// to one that aligns below its next, no barrier overtakes: what the second blocks
// then is behind the snapshot of the first. docs/checkpointing.md has the argument.
//
// It depends on the edges alone, not on parallelism: the answer is the same after
// a rescale.
func (g *ExecutionGraph) OvertakableEdges() []bool {
	n := len(g.Vertices)
	// below: the vertex has an input that always aligns, or is behind one that has.
	// above: it is in front of a vertex that blocks inputs for such a one.
	below, above := make([]bool, n), make([]bool, n)
	blocks := make([]bool, n)
	for v := range g.Vertices {
		edges, aligns, several := 0, false, false
		for _, i := range g.Vertices[v].Inputs {
			e := &g.Edges[i]
			if e.Edge.Feedback {
				continue // never waited for, and takes all that comes
			}
			edges++
			aligns = aligns || !e.Edge.Partitioner.MayOvertake()
			several = several || edges > 1 || !e.isOneToOne()
			below[v] = below[v] || aligns || below[e.From]
		}
		blocks[v] = aligns && several // a single channel has no other to block for it
	}
	for v := n - 1; v >= 0; v-- {
		for _, i := range g.Vertices[v].Outputs {
			if e := &g.Edges[i]; !e.Edge.Feedback {
				above[v] = above[v] || above[e.To] || blocks[e.To]
			}
		}
	}
	may := make([]bool, len(g.Edges))
	for i := range g.Edges {
		e := &g.Edges[i]
		may[i] = e.Edge.Partitioner.MayOvertake() && (e.Edge.Feedback || !below[e.From] || !above[e.To])
	}
	return may
}
