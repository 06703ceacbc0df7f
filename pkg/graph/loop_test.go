package graph_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

// loopGraph is in -> loop -> step -> loop, with a sink behind step.
func loopGraph() graph.JobGraph {
	return graph.JobGraph{
		Name: "loop",
		Operators: []graph.Operator{
			{UID: "in", Kind: graph.SourceOperator, Parallelism: 1},
			{UID: "loop", Kind: graph.IterateOperator, Parallelism: 2, KeyType: "k"},
			{UID: "step", Kind: graph.ProcessOperator, Parallelism: 3, KeyType: "k"},
			{UID: "out", Kind: graph.SinkOperator, Parallelism: 3},
		},
		Edges: []graph.Edge{
			{From: "in", To: "loop", Partitioner: graph.Hash},
			{From: "loop", To: "step", Partitioner: graph.Hash},
			{From: "step", To: "loop", Partitioner: graph.Hash, Feedback: true},
			{From: "step", Output: "done", To: "out", Partitioner: graph.Forward},
		},
	}
}

func TestLoopsAreExpanded(t *testing.T) {
	x, err := graph.Expand(loopGraph(), 1)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{x.Vertices[0].Name, x.Vertices[1].Name, x.Vertices[2].Name}
	if !reflect.DeepEqual(names, []string{"in", "loop", "step -> out"}) {
		t.Errorf("vertices are %v", names)
	}
	if !x.IsLoopHead(1) || x.IsLoopHead(0) || x.IsLoopHead(2) {
		t.Error("the head is not known")
	}
	var feedback, forward int
	for _, c := range x.InputChannels(1, 1) {
		if c.Feedback {
			feedback++
			if c.From.Vertex != 2 || c.FromOutput != 1 {
				t.Errorf("feedback comes from %+v", c)
			}
		} else {
			forward++
		}
	}
	if feedback != 3 || forward != 1 {
		t.Errorf("the head has %d feedback channels and %d others, want 3 and 1", feedback, forward)
	}
	if name := x.EdgeName(2); name != "step[] -> loop[0]" {
		t.Errorf("the feedback edge is called %q", name)
	}
	read, err := graph.FromProto(graph.ToProto(loopGraph()))
	if err != nil || !read.Edges[2].Feedback {
		t.Errorf("over the wire: %+v, %v", read.Edges, err)
	}
	if forgotten := loopGraph(); true {
		forgotten.Edges[2].Feedback, forgotten.Edges[2].To = false, "out"
		if graph.Fingerprint(forgotten) == graph.Fingerprint(loopGraph()) {
			t.Error("the fingerprint does not see the loop")
		}
	}
}

// A head and its body in one vertex feed themselves.
func TestChainedLoopsLeadBackToTheirOwnVertex(t *testing.T) {
	g := loopGraph()
	g.Operators[2].Parallelism = 2
	g.Operators[3].Parallelism = 2
	g.Edges[1].Partitioner = graph.Forward
	x, err := graph.Expand(g, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Vertices) != 2 || !x.IsLoopHead(1) {
		t.Fatalf("vertices are %+v", x.Vertices)
	}
	out := x.OutputChannels(1, 0)
	if len(out) != 1 || len(out[0]) != 2 || out[0][1].To != (ids.SubtaskID{Vertex: 1, Index: 1}) {
		t.Errorf("output channels are %+v", out)
	}
}

func TestEdgesOfOneNameAreNumbered(t *testing.T) {
	g := loopGraph()
	g.Edges = append(g.Edges, graph.Edge{From: "in", To: "loop", Partitioner: graph.Hash})
	x, err := graph.Expand(g, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range x.Edges {
		if name := x.EdgeName(i); seen[name] {
			t.Errorf("two edges are called %q", name)
		} else {
			seen[name] = true
		}
	}
}

func TestUnsoundLoopsAreRefused(t *testing.T) {
	for reason, spoil := range map[string]func(*graph.JobGraph){
		"on or behind a cycle":      func(g *graph.JobGraph) { g.Edges[2].Feedback = false },
		"has no feedback":           func(g *graph.JobGraph) { g.Edges = append(g.Edges[:2:2], g.Edges[3]) },
		"only the head of a loop":   func(g *graph.JobGraph) { g.Edges[2].To = "step" },
		"has to be hash":            func(g *graph.JobGraph) { g.Edges[2].Partitioner = graph.Rebalance },
		"loops cannot be nested":    func(g *graph.JobGraph) { nest(g) },
		"inside of loops":           func(g *graph.JobGraph) { share(g) },
		"\"loop\" has no input":     func(g *graph.JobGraph) { g.Edges = g.Edges[1:] },
		"only stream.Iterate makes": func(g *graph.JobGraph) { g.Edges[2].Feedback = false },
	} {
		g := loopGraph()
		spoil(&g)
		if err := graph.Validate(g); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("error %v, want %q", err, reason)
		}
	}
}

// share makes a loop whose body is that of the other.
func share(g *graph.JobGraph) {
	g.Operators = append(g.Operators, graph.Operator{UID: "other", Kind: graph.IterateOperator, KeyType: "k"})
	g.Edges = append(g.Edges,
		graph.Edge{From: "in", To: "other", Partitioner: graph.Hash},
		graph.Edge{From: "other", To: "step", Partitioner: graph.Hash},
		graph.Edge{From: "step", Output: "other", To: "other", Partitioner: graph.Hash, Feedback: true})
}

// nest puts a loop into the body of the other.
func nest(g *graph.JobGraph) {
	g.Operators = append(g.Operators, graph.Operator{UID: "inner", Kind: graph.IterateOperator, KeyType: "k"},
		graph.Operator{UID: "turn", Kind: graph.ProcessOperator, KeyType: "k"})
	g.Edges[1].To = "inner"
	g.Edges = append(g.Edges,
		graph.Edge{From: "inner", To: "turn", Partitioner: graph.Hash},
		graph.Edge{From: "turn", To: "inner", Partitioner: graph.Hash, Feedback: true},
		graph.Edge{From: "turn", Output: "on", To: "step", Partitioner: graph.Hash})
}

// TestLoopHasWhatLeadsBack has a body of two vertices, of which one is fed from
// outside, and a vertex behind the loop.
func TestLoopHasWhatLeadsBack(t *testing.T) {
	g, err := graph.Expand(graph.JobGraph{
		Name: "loop",
		Operators: []graph.Operator{
			{UID: "in", Kind: graph.SourceOperator, Parallelism: 1},
			{UID: "head", Kind: graph.IterateOperator, Parallelism: 2, KeyType: "k"},
			{UID: "first", Kind: graph.ProcessOperator, Parallelism: 1, KeyType: "k"},
			{UID: "aside", Kind: graph.SourceOperator, Parallelism: 1},
			{UID: "second", Kind: graph.ConnectOperator, Parallelism: 2, KeyType: "k"},
			{UID: "behind", Kind: graph.ProcessOperator, Parallelism: 1, KeyType: "k"},
		},
		Edges: []graph.Edge{
			{From: "in", To: "head", Partitioner: graph.Hash},
			{From: "head", To: "first", Partitioner: graph.Hash},
			{From: "first", To: "second", Partitioner: graph.Hash},
			{From: "aside", To: "second", Partitioner: graph.Hash, Input: 1},
			{From: "second", To: "head", Partitioner: graph.Hash, Feedback: true},
			{From: "second", To: "behind", Partitioner: graph.Hash},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for v := range g.Vertices {
		id := ids.VertexID(v)
		var names []ids.OperatorUID
		for _, member := range g.Loop(id) {
			names = append(names, g.Vertices[member].Chain[0])
		}
		var want []ids.OperatorUID
		if g.Vertices[v].Chain[0] == "head" {
			want = []ids.OperatorUID{"head", "first", "second"}
		}
		if !slices.Equal(names, want) {
			t.Errorf("the loop of %s has %v, want %v", g.Vertices[v].Chain[0], names, want)
		}
	}
}
