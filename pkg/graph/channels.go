package graph

import (
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
)

// InputChannel is one channel into a subtask. Its number is its place in
// InputChannels; credits, frames and alignment speak of it by that number.
type InputChannel struct {
	// Edge is the index into ExecutionGraph.Edges.
	Edge int
	// Gate is the input of the head operator that the channel belongs to.
	Gate int
	From ids.SubtaskID
	// FromOutput is the channel's place among the producing subtask's
	// channels of that edge.
	FromOutput int
	// Feedback: it closes a loop.
	Feedback bool
}

// OutputChannel is one channel out of a subtask.
type OutputChannel struct {
	To ids.SubtaskID
	// ToChannel is the channel's number at the consumer.
	ToChannel int
}

// InputChannels lists the channels into subtask index of a vertex: edge by
// edge in the order of Vertex.Inputs, within an edge by producing subtask.
func (g *ExecutionGraph) InputChannels(vertex ids.VertexID, index int32) []InputChannel {
	var channels []InputChannel
	for _, i := range g.Vertices[vertex].Inputs {
		e := &g.Edges[i]
		if e.isOneToOne() {
			channels = append(channels, InputChannel{
				Edge: i, Gate: e.Edge.Input, From: ids.SubtaskID{Vertex: e.From, Index: index}, Feedback: e.Edge.Feedback,
			})
			continue
		}
		for p := range g.Vertices[e.From].Parallelism {
			channels = append(channels, InputChannel{
				Edge: i, Gate: e.Edge.Input,
				From:       ids.SubtaskID{Vertex: e.From, Index: int32(p)},
				FromOutput: int(index), Feedback: e.Edge.Feedback,
			})
		}
	}
	return channels
}

// OutputChannels lists, for each edge in Vertex.Outputs, the channels out of
// subtask index of a vertex by consuming subtask.
func (g *ExecutionGraph) OutputChannels(vertex ids.VertexID, index int32) [][]OutputChannel {
	outputs := g.Vertices[vertex].Outputs
	byEdge := make([][]OutputChannel, len(outputs))
	for n, i := range outputs {
		e := &g.Edges[i]
		base := g.firstInputChannel(e)
		if e.isOneToOne() {
			byEdge[n] = []OutputChannel{{To: ids.SubtaskID{Vertex: e.To, Index: index}, ToChannel: base}}
			continue
		}
		channels := make([]OutputChannel, g.Vertices[e.To].Parallelism)
		for c := range channels {
			channels[c] = OutputChannel{To: ids.SubtaskID{Vertex: e.To, Index: int32(c)}, ToChannel: base + int(index)}
		}
		byEdge[n] = channels
	}
	return byEdge
}

// InputChannel is the number, at a consuming subtask, of the channel from a
// producing one on an edge.
func (g *ExecutionGraph) InputChannel(edge int, producer int32) int {
	e := &g.Edges[edge]
	if e.isOneToOne() {
		return g.firstInputChannel(e)
	}
	return g.firstInputChannel(e) + int(producer)
}

// EdgeName names an edge so that other versions of the program, which may have
// more or fewer edges, call it the same.
func (g *ExecutionGraph) EdgeName(edge int) string {
	e := &g.Edges[edge].Edge
	name := fmt.Sprintf("%s[%s] -> %s[%d]", e.From, e.Output, e.To, e.Input)
	same := 0
	for i := range edge {
		if o := &g.Edges[i].Edge; o.From == e.From && o.Output == e.Output && o.To == e.To && o.Input == e.Input {
			same++
		}
	}
	if same > 0 {
		return fmt.Sprintf("%s #%d", name, same)
	}
	return name
}

// IsLoopHead reports whether a vertex is headed by the head of a loop.
func (g *ExecutionGraph) IsLoopHead(v ids.VertexID) bool {
	for _, i := range g.Vertices[v].Inputs {
		if g.Edges[i].Edge.Feedback {
			return true
		}
	}
	return false
}

// Loop lists the vertices of the loop that a vertex is headed by the head of,
// in order, itself first: those that its records reach and that lead back to
// it. It is empty for other vertices.
func (g *ExecutionGraph) Loop(head ids.VertexID) []ids.VertexID {
	if !g.IsLoopHead(head) {
		return nil
	}
	reached, leads := make([]bool, len(g.Vertices)), make([]bool, len(g.Vertices))
	reached[head] = true
	for v := range g.Vertices {
		for _, i := range g.Vertices[v].Outputs {
			if e := &g.Edges[i]; !e.Edge.Feedback {
				reached[e.To] = reached[e.To] || reached[v]
			}
		}
	}
	for v := len(g.Vertices) - 1; v >= 0; v-- {
		for _, i := range g.Vertices[v].Outputs {
			e := &g.Edges[i]
			leads[v] = leads[v] || e.Edge.Feedback && e.To == head || !e.Edge.Feedback && leads[e.To]
		}
	}
	var loop []ids.VertexID
	for v := range g.Vertices {
		if reached[v] && (leads[v] || ids.VertexID(v) == head) {
			loop = append(loop, ids.VertexID(v))
		}
	}
	return loop
}

// ChannelCount is the number of channels of an edge over all subtasks.
func (g *ExecutionGraph) ChannelCount(edge int) int {
	e := &g.Edges[edge]
	if e.isOneToOne() {
		return g.Vertices[e.To].Parallelism
	}
	return g.Vertices[e.From].Parallelism * g.Vertices[e.To].Parallelism
}

// isOneToOne reports whether subtask i of the producer feeds subtask i of the
// consumer only.
func (e *PhysicalEdge) isOneToOne() bool { return e.Edge.Partitioner == Forward }

// firstInputChannel is the number, at every consuming subtask, of the edge's first channel.
func (g *ExecutionGraph) firstInputChannel(e *PhysicalEdge) int {
	n := 0
	for _, i := range g.Vertices[e.To].Inputs {
		if i == e.Index {
			break
		}
		if g.Edges[i].isOneToOne() {
			n++
		} else {
			n += g.Vertices[g.Edges[i].From].Parallelism
		}
	}
	return n
}
