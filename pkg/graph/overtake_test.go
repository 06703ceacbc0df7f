package graph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

// edgesOf makes a graph of "from partitioner to" words: h is hash, r rebalance, b
// broadcast, f forward, l the hash edge that closes a loop. Vertices are letters, in
// order of the alphabet.
func edgesOf(edges ...string) *graph.ExecutionGraph {
	g := &graph.ExecutionGraph{}
	for i, text := range edges {
		from, to := ids.VertexID(text[0]-'a'), ids.VertexID(text[2]-'a')
		e := graph.PhysicalEdge{Index: i, From: from, To: to}
		e.Edge.Partitioner = map[byte]graph.Partitioner{'h': graph.Hash, 'l': graph.Hash, 'r': graph.Rebalance, 'b': graph.Broadcast, 'f': graph.Forward}[text[1]]
		e.Edge.Feedback = text[1] == 'l'
		for len(g.Vertices) <= int(max(from, to)) {
			g.Vertices = append(g.Vertices, graph.Vertex{ID: ids.VertexID(len(g.Vertices)), Parallelism: 2})
		}
		g.Vertices[from].Outputs = append(g.Vertices[from].Outputs, i)
		g.Vertices[to].Inputs = append(g.Vertices[to].Inputs, i)
		g.Edges = append(g.Edges, e)
	}
	return g
}

func TestNoBarrierOvertakesBetweenVerticesThatAlign(t *testing.T) {
	for _, test := range []struct {
		name  string
		edges string
		want  string // the edges that barriers may overtake on
	}{
		{"nothing aligns", "ahb bhc bhd crd", "ahb bhc bhd crd"},
		{"one vertex with rules", "ahc bbc chd", "ahc chd"},
		{"rules behind rules, next to each other", "ahb abb bhc bbc", "ahb bhc"},
		{"two ways from one that must process to one that blocks", "ahb abb bhc chd bfd", "ahb chd"},
		{"a second way that is not behind it", "ahb abb bhc chd afd", "ahb chd"},
		{"a single forward channel blocks no other", "ahb abb bhc chd dfe", "ahb bhc chd"},
		{"found by a simulated cluster", "ahb bhc ahc bhd cbd dhe bhe ehf fhg fle ghi dhh dbh hfi", "ahb bhc ahc bhd bhe fle ghi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			edges := strings.Fields(test.edges)
			var got []string
			for i, may := range edgesOf(edges...).OvertakableEdges() {
				if may {
					got = append(got, edges[i])
				}
			}
			want := strings.Fields(test.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("barriers may overtake on %v, want %v", got, want)
			}
		})
	}
}

// waits says for each edge whether it lies, and not as the last one, on a way from a
// vertex that must process up to a barrier to one that blocks channels until such a
// barrier comes. It walks all ways.
func waits(g *graph.ExecutionGraph, aligns func(edge int) bool) []bool {
	mustProcess, blocks := make([]bool, len(g.Vertices)), make([]bool, len(g.Vertices))
	for v := range g.Vertices {
		channels := 0
		for _, i := range g.Vertices[v].Inputs {
			if e := &g.Edges[i]; !e.Edge.Feedback {
				channels++
				if e.Edge.Partitioner != graph.Forward {
					channels++ // one or more from each producer
				}
				mustProcess[v] = mustProcess[v] || aligns(i)
			}
		}
		blocks[v] = mustProcess[v] && channels > 1
	}
	on := make([]bool, len(g.Edges))
	var walk func(v ids.VertexID, way []int)
	walk = func(v ids.VertexID, way []int) {
		if blocks[v] && len(way) > 1 {
			for _, i := range way[:len(way)-1] {
				on[i] = true
			}
		}
		for _, i := range g.Vertices[v].Outputs {
			if !g.Edges[i].Edge.Feedback {
				walk(g.Edges[i].To, append(way, i))
			}
		}
	}
	for v := range g.Vertices {
		if mustProcess[v] {
			walk(ids.VertexID(v), nil)
		}
	}
	return on
}

// An edge that aligns for the sake of others makes its consumer one that must
// process, and may make it one that blocks. For these, too, no barrier may overtake
// in between; and no edge aligns but for those that do by themselves and what lies
// between them.
func TestEdgesThatAlignForOthersAreEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds, aligned := "hhhrbfl", 0
	for range 2000 {
		n := 3 + random.IntN(6)
		var edges []string
		for to := 1; to < n; to++ {
			for range 1 + random.IntN(3) {
				from, kind := random.IntN(to), kinds[random.IntN(len(kinds))]
				if kind == 'l' {
					edges = append(edges, fmt.Sprintf("%cl%c", 'a'+to, 'a'+from))
					kind = 'h'
				}
				edges = append(edges, fmt.Sprintf("%c%c%c", 'a'+from, kind, 'a'+to))
			}
		}
		g := edgesOf(edges...)
		may := g.OvertakableEdges()
		byThemselves := waits(g, func(i int) bool { return !g.Edges[i].Edge.Partitioner.MayOvertake() })
		all := waits(g, func(i int) bool { return !may[i] })
		for i := range g.Edges {
			e := &g.Edges[i].Edge
			switch alone := e.Partitioner.MayOvertake(); {
			case may[i] && !alone:
				t.Fatalf("%v: a barrier overtakes on %s", edges, edges[i])
			case may[i] && all[i] && !e.Feedback:
				t.Fatalf("%v: a barrier overtakes on %s, between two vertices that align", edges, edges[i])
			case !may[i] && alone && !byThemselves[i]:
				t.Fatalf("%v: %s aligns for nobody", edges, edges[i])
			case !may[i] && alone:
				aligned++
			}
		}
	}
	if aligned == 0 {
		t.Error("no edge aligned for the sake of others")
	}
}
