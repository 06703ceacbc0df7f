package graph

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// flights is source -> parse =hash=> stats -> format -> out, the shape of the main example.
func flights() JobGraph {
	return JobGraph{
		Name: "flights",
		Operators: []Operator{
			{UID: "src", Kind: SourceOperator, OutputType: "Flight", Bounded: true, Options: []Option{{"path", "in"}}},
			{UID: "parse", Kind: MapOperator, OutputType: "Flight"},
			{UID: "stats", Kind: ProcessOperator, KeyType: "string", OutputType: "Delay"},
			{UID: "format", Kind: MapOperator, OutputType: "string"},
			{UID: "out", Kind: SinkOperator, TwoPhase: true},
		},
		Edges: []Edge{
			{From: "src", To: "parse", Partitioner: Forward, Type: "Flight"},
			{From: "parse", To: "stats", Partitioner: Hash, Type: "Flight"},
			{From: "stats", To: "format", Partitioner: Forward, Type: "Delay"},
			{From: "format", To: "out", Partitioner: Forward, Type: "string"},
		},
	}
}

func TestValidateNamesWhatIsWrongAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*JobGraph)
		want   []string
	}{
		{"missing UID", func(g *JobGraph) { g.Operators[1].UID = "" }, []string{"operator 1 (map) has no UID", "give it a name"}},
		{"bad UID", func(g *JobGraph) { g.Operators[1].UID = "a b" }, []string{`"a b"`, "use letters"}},
		{"same UID twice", func(g *JobGraph) { g.Operators[3].UID = "parse" },
			[]string{`the UID "parse"`, "operator 1 (map)", "operator 3 (map)", "give each its own"}},
		{"unknown producer", func(g *JobGraph) { g.Edges[0].From = "x" }, []string{`leaves operator "x"`, "add the operator"}},
		{"unknown consumer", func(g *JobGraph) { g.Edges[0].To = "x" }, []string{`leads to operator "x"`, "add the operator"}},
		{"no source", func(g *JobGraph) { g.Operators[0].Kind = MapOperator }, []string{"no source", "stream.From"}},
		{"source with input", func(g *JobGraph) {
			g.Edges = append(g.Edges, Edge{From: "parse", To: "src", Partitioner: Rebalance})
		}, []string{`source "src"`, "union"}},
		{"sink with output", func(g *JobGraph) {
			g.Edges = append(g.Edges, Edge{From: "out", To: "parse", Partitioner: Rebalance})
		}, []string{`sink "out"`, "in front of the sink"}},
		{"cycle", func(g *JobGraph) {
			g.Edges = append(g.Edges, Edge{From: "format", To: "parse", Partitioner: Rebalance})
		}, []string{"cycle", "remove the edge"}},
		{"edge to itself", func(g *JobGraph) {
			g.Edges = append(g.Edges, Edge{From: "parse", To: "parse", Partitioner: Rebalance})
		}, []string{`"parse"`, "cycle"}},
		{"no input", func(g *JobGraph) { g.Edges = g.Edges[1:] }, []string{`map "parse" has no input`, "attach it"}},
		{"second input of a map", func(g *JobGraph) { g.Edges[0].Input = 1 }, []string{"enters input 1", "use a connect"}},
		{"input 2", func(g *JobGraph) { g.Edges[0].Input = 2 }, []string{"enters input 2"}},
		{"connect with one input", func(g *JobGraph) { g.Operators[2].Kind = ConnectOperator },
			[]string{`connect "stats"`, "nothing on input 1", "two streams"}},
		{"hash without key", func(g *JobGraph) { g.Operators[2].KeyType = "" }, []string{`"stats" has no key type`, "KeyBy"}},
		{"forward, unequal", func(g *JobGraph) { g.Operators[0].Parallelism, g.Operators[1].Parallelism = 2, 3 },
			[]string{`"src" (parallelism 2)`, `"parse" (parallelism 3)`, "rebalance"}},
		{"too parallel", func(g *JobGraph) { g.Operators[2].Parallelism = 129 }, []string{`"stats"`, "129", "128", "lower it"}},
		{"negative parallelism", func(g *JobGraph) { g.Operators[2].Parallelism = -1 }, []string{`"stats"`, "-1"}},
		{"max parallelism", func(g *JobGraph) { g.MaxParallelism = 40000 }, []string{"40000", "32768"}},
		{"unknown kind", func(g *JobGraph) { g.Operators[1].Kind = "fold" }, []string{`"fold"`, "same version"}},
		{"unknown partitioner", func(g *JobGraph) { g.Edges[0].Partitioner = "shuffle" }, []string{`"shuffle"`, "same version"}},
		{"too many operators", func(g *JobGraph) { g.Operators = make([]Operator, operatorsMax+1) }, []string{"4097 operators", "split"}},
		{"too many edges", func(g *JobGraph) { g.Edges = make([]Edge, edgesMax+1) }, []string{"edges", "split"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := flights()
			c.change(&g)
			err := Validate(g)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
	if err := Validate(flights()); err != nil {
		t.Fatal(err)
	}
}

func describe(g ExecutionGraph) string {
	var b strings.Builder
	for _, v := range g.Vertices {
		fmt.Fprintf(&b, "%d %s x%d in%v out%v\n", v.ID, v.Name, v.Parallelism, v.Inputs, v.Outputs)
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "edge %d: %d->%d %v channels=%d\n", e.Index, e.From, e.To, e.Edge, g.ChannelCount(e.Index))
	}
	return b.String()
}

func TestExpandChains(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*JobGraph)
		want   string
	}{
		{"forward edges", func(*JobGraph) {}, `
0 src -> parse x2 in[] out[0]
1 stats -> format -> out x2 in[0] out[]
edge 0: 0->1 parse -hash-> stats (Flight) channels=4
`},
		{"not where it is disabled", func(g *JobGraph) { g.Operators[3].ChainingDisabled = true }, `
0 src -> parse x2 in[] out[0]
1 stats x2 in[0] out[1]
2 format -> out x2 in[1] out[]
edge 0: 0->1 parse -hash-> stats (Flight) channels=4
edge 1: 1->2 stats -forward-> format (Delay) channels=2
`},
		{"several consumers of one producer", func(g *JobGraph) {
			g.Operators = append(g.Operators, Operator{UID: "late", Kind: SinkOperator})
			g.Edges = append(g.Edges, Edge{From: "stats", Output: "late", To: "late", Partitioner: Forward, Type: "Delay"})
		}, `
0 src -> parse x2 in[] out[0]
1 stats -> format -> out -> late x2 in[0] out[]
edge 0: 0->1 parse -hash-> stats (Flight) channels=4
`},
		{"not into a union", func(g *JobGraph) {
			g.Edges = append(g.Edges, Edge{From: "parse", Output: "bad", To: "out", Partitioner: Forward, Type: "string"})
		}, `
0 src -> parse x2 in[] out[0 2]
1 stats -> format x2 in[0] out[1]
2 out x2 in[1 2] out[]
edge 0: 0->1 parse -hash-> stats (Flight) channels=4
edge 1: 1->2 format -forward-> out (string) channels=2
edge 2: 0->2 parse[bad] -forward-> out (string) channels=2
`},
		{"declared backwards", func(g *JobGraph) { slices.Reverse(g.Operators); slices.Reverse(g.Edges) }, `
0 src -> parse x2 in[] out[0]
1 stats -> format -> out x2 in[0] out[]
edge 0: 0->1 parse -hash-> stats (Flight) channels=4
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := flights()
			c.change(&g)
			x, err := Expand(g, 2)
			if err != nil {
				t.Fatal(err)
			}
			if got := "\n" + describe(x); got != c.want {
				t.Fatalf("got %s\nwant %s", got, c.want)
			}
			if x.MaxParallelism != 128 || x.Job.MaxParallelism != 128 || x.Job.Operators[0].Parallelism != 2 {
				t.Fatal("defaults are not filled in")
			}
			if g.Operators[0].Parallelism != 0 {
				t.Fatal("the argument was changed")
			}
		})
	}
}

func TestExpandChecksDefaults(t *testing.T) {
	if _, err := Expand(flights(), 0); err == nil || !strings.Contains(err.Error(), "parallelism.default") {
		t.Fatal(err)
	}
	if _, err := Expand(flights(), 200); err == nil || !strings.Contains(err.Error(), "max parallelism 128") {
		t.Fatal(err)
	}
	g := flights()
	g.Operators[0].Parallelism = 3
	if _, err := Expand(g, 2); err == nil || !strings.Contains(err.Error(), "same parallelism") {
		t.Fatal(err)
	}
}

// diamond has a connect that is fed by a union and a forward edge, at mixed parallelism.
func diamond() JobGraph {
	return JobGraph{
		Operators: []Operator{
			{UID: "a", Kind: SourceOperator, Parallelism: 3},
			{UID: "b", Kind: SourceOperator, Parallelism: 2},
			{UID: "c", Kind: SourceOperator, Parallelism: 4},
			{UID: "join", Kind: ConnectOperator, KeyType: "string", Parallelism: 4},
			{UID: "out", Kind: SinkOperator, Parallelism: 1},
		},
		Edges: []Edge{
			{From: "a", To: "join", Partitioner: Hash},
			{From: "b", To: "join", Input: 1, Partitioner: Hash},
			{From: "c", To: "join", Partitioner: Forward},
			{From: "join", To: "out", Partitioner: Rebalance},
		},
	}
}

func TestChannelNumbers(t *testing.T) {
	x, err := Expand(diamond(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []InputChannel{
		{Edge: 0, Gate: 0, From: ids.SubtaskID{Vertex: 0, Index: 0}, FromOutput: 2},
		{Edge: 0, Gate: 0, From: ids.SubtaskID{Vertex: 0, Index: 1}, FromOutput: 2},
		{Edge: 0, Gate: 0, From: ids.SubtaskID{Vertex: 0, Index: 2}, FromOutput: 2},
		{Edge: 1, Gate: 1, From: ids.SubtaskID{Vertex: 1, Index: 0}, FromOutput: 2},
		{Edge: 1, Gate: 1, From: ids.SubtaskID{Vertex: 1, Index: 1}, FromOutput: 2},
		{Edge: 2, Gate: 0, From: ids.SubtaskID{Vertex: 2, Index: 2}, FromOutput: 0},
	}
	if got := x.InputChannels(3, 2); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// Both ends of every channel must name each other.
func TestChannelEndsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := diamond()
		p := rapid.IntRange(1, 6).Draw(t, "p")
		g.Operators[0].Parallelism = rapid.IntRange(1, 6).Draw(t, "a")
		g.Operators[1].Parallelism = rapid.IntRange(1, 6).Draw(t, "b")
		g.Operators[2].Parallelism, g.Operators[3].Parallelism = p, p
		g.Operators[4].Parallelism = rapid.IntRange(1, 6).Draw(t, "out")
		x, err := Expand(g, 1)
		if err != nil {
			t.Fatal(err)
		}
		inputs, outputs := 0, 0
		for _, s := range x.Subtasks() {
			for n, in := range x.InputChannels(s.Vertex, s.Index) {
				inputs++
				outs := x.OutputChannels(in.From.Vertex, in.From.Index)
				place := slices.Index(x.Vertices[in.From.Vertex].Outputs, in.Edge)
				if back := outs[place][in.FromOutput]; back.To != s || back.ToChannel != n {
					t.Fatalf("channel %d of %v comes from %+v, which leads to %+v", n, s, in, back)
				}
			}
			for _, edge := range x.OutputChannels(s.Vertex, s.Index) {
				outputs += len(edge)
			}
		}
		total := 0
		for i := range x.Edges {
			total += x.ChannelCount(i)
		}
		if inputs != outputs || inputs != total {
			t.Fatalf("%d input channels, %d output channels, %d counted", inputs, outputs, total)
		}
	})
}

func TestFingerprintAndDiffAgree(t *testing.T) {
	changes := map[string]func(*JobGraph){
		`operator "parse" was submitted, but is not built`: func(g *JobGraph) { g.Operators[1].UID, g.Edges[0].To, g.Edges[1].From = "p2", "p2", "p2" },
		`operator "src": option path: submitted "in"`:      func(g *JobGraph) { g.Operators[0].Options[0].Value = "elsewhere" },
		`operator "src": option: submitted "path"`:         func(g *JobGraph) { g.Operators[0].Options[0].Key = "file" },
		`operator "src": number of options`:                func(g *JobGraph) { g.Operators[0].Options = nil },
		`operator "stats": key type: submitted "string"`:   func(g *JobGraph) { g.Operators[2].KeyType = "int64" },
		`operator "stats": parallelism: submitted 0`:       func(g *JobGraph) { g.Operators[2].Parallelism = 7 },
		`operator "out": two-phase`:                        func(g *JobGraph) { g.Operators[4].TwoPhase = false },
		`operator "parse": describes`:                      func(g *JobGraph) { g.Operators[1].DescribesStates = !g.Operators[1].DescribesStates },
		`operator "stats": number of states: submitted 0, built 1`: func(g *JobGraph) {
			g.Operators[2].States = []State{{Name: "n", Kind: "value", Codec: "avro/1", Schema: `"long"`, KeySchema: "key/1:string"}}
		},
		`edge 1: submitted parse -hash-> stats (Flight)`: func(g *JobGraph) { g.Edges[1].Type = "Other" },
		`number of edges: submitted 4, built 3`:          func(g *JobGraph) { g.Edges = g.Edges[:3] },
		`max parallelism: submitted 128, built 64`:       func(g *JobGraph) { g.MaxParallelism = 64 },
		`(the order differs)`: func(g *JobGraph) {
			g.Operators[0], g.Operators[1] = g.Operators[1], g.Operators[0]
		},
	}
	for want, change := range changes {
		a, b := flights(), flights()
		b.Name = "another name does not matter"
		b.MaxParallelism = 128 // the default, said aloud
		if d := Diff(a, b); d != "" || Fingerprint(a) != Fingerprint(b) {
			t.Fatalf("equal graphs differ: %s", d)
		}
		change(&b)
		if d := Diff(a, b); !strings.Contains(d, want) {
			t.Errorf("diff %q does not say %q", d, want)
		}
		if Fingerprint(a) == Fingerprint(b) {
			t.Errorf("%s: fingerprints are equal", want)
		}
	}
}

// Every part of a state's description tells two graphs apart.
func TestFingerprintHasTheStates(t *testing.T) {
	with := func(change func(*State)) JobGraph {
		g := flights()
		s := State{Name: "n", Kind: "value", Codec: "avro/1", Schema: `"long"`, KeySchema: "key/1:string"}
		change(&s)
		g.Operators[2].States = []State{s}
		return g
	}
	is := with(func(*State) {})
	for name, change := range map[string]func(*State){
		"name": func(s *State) { s.Name = "m" }, "kind": func(s *State) { s.Kind = "list" }, "codec": func(s *State) { s.Codec = "weir/1" },
		"schema": func(s *State) { s.Schema = `"int"` }, "key schema": func(s *State) { s.KeySchema = "key/1:int64" },
	} {
		if other := with(change); Fingerprint(other) == Fingerprint(is) || !strings.Contains(Diff(is, other), `operator "stats": state 0`) {
			t.Errorf("%s: %s", name, Diff(is, other))
		}
	}
}

func TestDiffIsBounded(t *testing.T) {
	other := JobGraph{}
	for i := range 100 {
		other.Operators = append(other.Operators, Operator{UID: ids.OperatorUID(fmt.Sprint("o", i))})
	}
	if n := strings.Count(Diff(flights(), other), "\n"); n != diffLinesMax {
		t.Fatalf("%d lines", n+1)
	}
}

func TestProtoRoundTrip(t *testing.T) {
	for _, g := range []JobGraph{flights(), diamond()} {
		back, err := FromProto(ToProto(g))
		if err != nil {
			t.Fatal(err)
		}
		if d := Diff(g, back); d != "" || back.Name != g.Name {
			t.Fatal(d)
		}
	}
}

// Whatever a client sends, FromProto answers with an error or a graph that expands.
func FuzzFromProto(f *testing.F) {
	for _, g := range []JobGraph{flights(), diamond()} {
		b, err := proto.Marshal(ToProto(g))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.JobGraph
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		g, err := FromProto(&m)
		if err != nil {
			return
		}
		x, err := Expand(g, 1)
		if err != nil {
			return // a forward edge against the default parallelism
		}
		for _, e := range x.Edges {
			if e.From >= e.To {
				t.Fatalf("edge %v leads backwards", e)
			}
		}
		back, err := FromProto(ToProto(g))
		if err != nil || Fingerprint(back) != Fingerprint(g) {
			t.Fatalf("round trip: %v", err)
		}
	})
}
