package graph_test

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

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
