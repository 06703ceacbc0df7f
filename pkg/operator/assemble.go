package operator

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/runtime/watermark"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Chain is the running code of one vertex in one subtask.
type Chain struct {
	// Inputs are the decode loops, one for each incoming edge of the vertex in order.
	Inputs []Input
	// Source is set when the head is a source.
	Source SourceRunner
	// Operators in topological order, the head first.
	Operators []ChainOperator
	// Time is what all of them know of time.
	Time *Time
	// Writers, one for each outgoing edge of the vertex in order.
	Writers []*Writer
	// Groupers, one for each incoming edge of the vertex in order; nil for those
	// that are not partitioned by key.
	Groupers []Grouper
}

// ChainOperator is one operator of a chain.
type ChainOperator struct {
	Context  *Context
	Instance Instance
	// Upstream is the place in the chain of the operator in front, -1 for the head.
	Upstream int
	// Writers are the places in Chain.Writers of the edges that begin here.
	Writers []int
}

// Place says which subtask a chain is assembled for.
type Place struct {
	Job                ids.JobID
	Attempt            ids.AttemptID
	Subtask            ids.SubtaskID
	RestoredCheckpoint ids.CheckpointID
	Savepoints         []ids.CheckpointID
	Output             io.Writer
	Backend            statebackend.Backend
	// Dir is the subtask's directory on local disk; every operator gets one in it.
	Dir string
	Now func() time.Time
}

// operatorDir is the directory of the operator at a place in the chain. UIDs
// may have bytes that no file name has.
func (p *Place) operatorDir(i int) string {
	if p.Dir == "" {
		return ""
	}
	return filepath.Join(p.Dir, fmt.Sprintf("operator-%d", i))
}

// Assemble makes the code of one subtask from the program: from the tail of
// the chain to its head, since each operator is given the collectors of its
// outputs.
func Assemble(p *Program, g *graph.ExecutionGraph, at Place, outbox Outbox) (*Chain, error) {
	v := &g.Vertices[at.Subtask.Vertex]
	a := &assembly{program: p, graph: g, vertex: v, instances: map[ids.OperatorUID]Instance{}, chain: &Chain{
		Time: &Time{Timestamp: NoTimestamp, Split: watermark.NoSplit},
	}}
	for n, index := range v.Outputs {
		e := &g.Edges[index]
		channels := len(g.OutputChannels(v.ID, at.Subtask.Index)[n])
		a.chain.Writers = append(a.chain.Writers, NewWriter(outbox, n, channels,
			int(at.Subtask.Index), g.Vertices[e.To].Parallelism, g.MaxParallelism))
		a.chain.Writers[n].Time = a.chain.Time
	}
	for _, uid := range slices.Backward(v.Chain) {
		node := p.Nodes[uid]
		if node == nil {
			return nil, fmt.Errorf("operator %s is in the graph but the program has no code for it", uid)
		}
		inst, err := node.New(func(tag string) any { return a.output(node, tag) })
		if err != nil {
			return nil, fmt.Errorf("make operator %s: %w", uid, err)
		}
		a.instances[uid] = inst
	}
	for i, uid := range v.Chain {
		a.chain.Operators = append(a.chain.Operators, ChainOperator{
			Instance: a.instances[uid],
			Upstream: a.upstream(uid),
			Writers:  a.writersOf(uid),
			Context: &Context{
				Job: at.Job, JobName: g.Name, Operator: uid, Attempt: at.Attempt,
				Index: int(at.Subtask.Index), Parallelism: v.Parallelism, MaxParallelism: g.MaxParallelism,
				KeyGroups:          keygroup.RangeOf(int(at.Subtask.Index), v.Parallelism, g.MaxParallelism),
				RestoredCheckpoint: at.RestoredCheckpoint, Savepoints: at.Savepoints, Output: at.Output, Backend: at.Backend, Now: at.Now,
				Dir:  at.operatorDir(i),
				Time: a.chain.Time, Watermark: watermark.None,
			},
		})
	}
	head := a.instances[v.Chain[0]]
	a.chain.Source = head.Source
	for _, index := range v.Inputs {
		e := &g.Edges[index].Edge
		code := a.edgeCode(e)
		var grouper Grouper
		if code.NewGrouper != nil {
			grouper = code.NewGrouper(g.MaxParallelism)
		}
		a.chain.Groupers = append(a.chain.Groupers, grouper)
		if code.NewStampedInput != nil {
			a.chain.Inputs = append(a.chain.Inputs, code.NewStampedInput(head.Inputs[e.Input], a.chain.Time))
			continue
		}
		a.chain.Inputs = append(a.chain.Inputs, code.NewInput(head.Inputs[e.Input]))
	}
	return a.chain, nil
}

type assembly struct {
	program   *Program
	graph     *graph.ExecutionGraph
	vertex    *graph.Vertex
	instances map[ids.OperatorUID]Instance
	chain     *Chain
}

// output makes the collector of one output of an operator: its chained
// consumers and the writers of its edges that leave the vertex.
func (a *assembly) output(node *Node, tag string) any {
	var targets []any
	for i := range a.program.Graph.Edges {
		e := &a.program.Graph.Edges[i]
		if e.From != node.UID || e.Output != tag {
			continue
		}
		if n := a.writerOf(e); n >= 0 {
			targets = append(targets, a.program.Edges[i].NewOutput(a.chain.Writers[n]))
			continue
		}
		consumer, ok := a.instances[e.To]
		invariant.Check(ok, "chain order", "%s -> %s neither leaves the vertex nor is chained", e.From, e.To)
		targets = append(targets, consumer.Inputs[e.Input])
	}
	switch len(targets) {
	case 0:
		return node.Discard[tag]
	case 1:
		return targets[0]
	}
	return node.Tee[tag](targets)
}

// upstream finds the operator in front of one in the chain. All but the head
// have one input, from inside the chain.
func (a *assembly) upstream(uid ids.OperatorUID) int {
	if uid == a.vertex.Chain[0] {
		return -1
	}
	for _, e := range a.program.Graph.Edges {
		if e.To == uid {
			return slices.Index(a.vertex.Chain, e.From)
		}
	}
	invariant.Check(false, "chain order", "%s is not the head of its chain and has no input", uid)
	return -1
}

// writersOf finds the edges that leave the vertex at an operator.
func (a *assembly) writersOf(uid ids.OperatorUID) []int {
	var out []int
	for n, index := range a.vertex.Outputs {
		if a.graph.Edges[index].Edge.From == uid {
			out = append(out, n)
		}
	}
	return out
}

// writerOf finds the writer of an edge, or -1 when the edge is chained.
func (a *assembly) writerOf(e *graph.Edge) int {
	for n, index := range a.vertex.Outputs {
		if a.graph.Edges[index].Edge == *e {
			return n
		}
	}
	return -1
}

func (a *assembly) edgeCode(e *graph.Edge) *EdgeCode {
	for i := range a.program.Graph.Edges {
		if a.program.Graph.Edges[i] == *e {
			return a.program.Edges[i]
		}
	}
	invariant.Check(false, "graph", "edge %s -> %s is not in the program", e.From, e.To)
	return nil
}
