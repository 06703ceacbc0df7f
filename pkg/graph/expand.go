package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

// Expand turns a job graph into its execution graph: it fills in the default
// parallelism and max parallelism, chains operators into vertices, and numbers
// vertices and edges. Equal graphs expand equally, wherever it is done.
//
// An operator joins the vertex of its producer when its only input is one
// Forward edge and chaining is not disabled for it; a producer may have
// several such consumers.
func Expand(g JobGraph, defaultParallelism int) (ExecutionGraph, error) {
	if defaultParallelism < 1 {
		return ExecutionGraph{}, fmt.Errorf("default parallelism is %d: set parallelism.default to 1 or more", defaultParallelism)
	}
	job := clone(g)
	job.MaxParallelism = effectiveMaxParallelism(g)
	for i := range job.Operators {
		if job.Operators[i].Parallelism == 0 {
			job.Operators[i].Parallelism = defaultParallelism
		}
	}
	// The second validation sees every parallelism, the first could not.
	if err := Validate(job); err != nil {
		return ExecutionGraph{}, err
	}
	byUID := indexOperators(job)
	order, err := topologicalOrder(job, byUID)
	if err != nil {
		return ExecutionGraph{}, err
	}
	x := ExecutionGraph{Name: job.Name, MaxParallelism: job.MaxParallelism, Job: job}
	vertexOf := buildVertices(&x, order, chainEdges(job, byUID), byUID)
	connectVertices(&x, vertexOf, byUID)
	return x, nil
}

func clone(g JobGraph) JobGraph {
	g.Operators = slices.Clone(g.Operators)
	for i := range g.Operators {
		g.Operators[i].Options = slices.Clone(g.Operators[i].Options)
	}
	g.Edges = slices.Clone(g.Edges)
	return g
}

// chainEdges gives, for each operator that is chained to its producer, that
// producer's position, and -1 for the heads.
func chainEdges(job JobGraph, byUID map[ids.OperatorUID]int) []int {
	inputs := make([]int, len(job.Operators))
	producer := make([]int, len(job.Operators))
	for i := range producer {
		producer[i] = -1
	}
	for _, e := range job.Edges {
		to := byUID[e.To]
		inputs[to]++
		if e.Partitioner == Forward && e.Input == 0 {
			producer[to] = byUID[e.From]
		}
	}
	for i, op := range job.Operators {
		// A connect keeps its own vertex even when wrongly fed by one edge:
		// Validate refuses that before we come here.
		if inputs[i] != 1 || op.ChainingDisabled || op.Kind == IterateOperator {
			producer[i] = -1
		}
	}
	return producer
}

// buildVertices makes the vertices in topological order. The place of a
// vertex is the place of its head: all that leads into a vertex leads into
// its head, so heads order the vertices.
func buildVertices(x *ExecutionGraph, order, chainedTo []int, byUID map[ids.OperatorUID]int) []ids.VertexID {
	vertexOf := make([]ids.VertexID, len(byUID))
	for _, i := range order {
		op := x.Job.Operators[i]
		if p := chainedTo[i]; p >= 0 {
			vertexOf[i] = vertexOf[p]
			v := &x.Vertices[vertexOf[i]]
			v.Chain = append(v.Chain, op.UID)
			continue
		}
		vertexOf[i] = ids.VertexID(len(x.Vertices))
		x.Vertices = append(x.Vertices, Vertex{
			ID:          vertexOf[i],
			Chain:       []ids.OperatorUID{op.UID},
			Parallelism: op.Parallelism,
		})
	}
	for i := range x.Vertices {
		names := make([]string, len(x.Vertices[i].Chain))
		for j, uid := range x.Vertices[i].Chain {
			names[j] = string(uid)
		}
		x.Vertices[i].Name = strings.Join(names, " -> ")
	}
	return vertexOf
}

func connectVertices(x *ExecutionGraph, vertexOf []ids.VertexID, byUID map[ids.OperatorUID]int) {
	for _, e := range x.Job.Edges {
		from, to := vertexOf[byUID[e.From]], vertexOf[byUID[e.To]]
		if from == to && !e.Feedback {
			continue // chained
		}
		index := len(x.Edges)
		x.Edges = append(x.Edges, PhysicalEdge{Index: index, Edge: e, From: from, To: to})
		x.Vertices[from].Outputs = append(x.Vertices[from].Outputs, index)
		x.Vertices[to].Inputs = append(x.Vertices[to].Inputs, index)
	}
}

// Operator finds an operator of the graph by its UID.
func (g JobGraph) Operator(uid ids.OperatorUID) (Operator, bool) {
	for _, op := range g.Operators {
		if op.UID == uid {
			return op, true
		}
	}
	return Operator{}, false
}

// LargestParallelism is the number of slots that the job needs: a slot holds
// one subtask of each vertex.
func (g *ExecutionGraph) LargestParallelism() int {
	n := 0
	for i := range g.Vertices {
		n = max(n, g.Vertices[i].Parallelism)
	}
	return n
}

// SubtaskCount is the number of subtasks of all vertices.
func (g *ExecutionGraph) SubtaskCount() int {
	n := 0
	for i := range g.Vertices {
		n += g.Vertices[i].Parallelism
	}
	return n
}

// Subtasks lists all subtasks by vertex, then index.
func (g *ExecutionGraph) Subtasks() []ids.SubtaskID {
	all := make([]ids.SubtaskID, 0, g.SubtaskCount())
	for i := range g.Vertices {
		for j := range g.Vertices[i].Parallelism {
			all = append(all, ids.SubtaskID{Vertex: g.Vertices[i].ID, Index: int32(j)})
		}
	}
	return all
}

// IsSource reports whether the vertex is headed by a source.
func (g *ExecutionGraph) IsSource(v ids.VertexID) bool { return len(g.Vertices[v].Inputs) == 0 }
