package simjob

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/graph"
)

// Flow is a job graph drawn at random. What its operators do follows from the
// graph alone: each turns a token into none, one or two others, whose IDs tell
// the way they came. So what has come out, and what states hold, can be
// computed from how far the sources have been read. A Flow is a value that is
// not changed once it is made.
type Flow struct {
	// Nodes are in an order in which links lead forwards, the sources first
	// and the sinks last.
	Nodes []Node
}

// Node is one operator, or a few that belong together.
type Node struct {
	Kind        NodeKind
	Parallelism int
	// Inputs are the links into each gate; all but Connects and Ruled have one.
	Inputs [2][]Link
	// Unchained starts a vertex of its own.
	Unchained bool
	// HasTimers: a keyed node keeps some tokens back until event time has come
	// to where they say.
	HasTimers bool

	// A source has Splits, numbered from First, of Records each. One that is
	// Unbounded waits for more behind them.
	First, Splits int
	Records       uint64
	Unbounded     bool
}

// NodeKind is what a node does.
type NodeKind int

// The kinds of node.
const (
	// SourceNode emits a token for each record, with timestamp and watermarks.
	SourceNode NodeKind = iota
	// FlatNode has no state.
	FlatNode
	// KeyedNode counts by key and split.
	KeyedNode
	// ConnectNode does that for two inputs that are keyed alike.
	ConnectNode
	// RuledNode does that for one, and has a second that is broadcast.
	RuledNode
	// LoopNode counts like a KeyedNode each time that a token comes round, which
	// is up to three times, by another key each.
	LoopNode
	// RingNode sends tokens round like a LoopNode, without state: its body stays on
	// the subtask of the head, so that a barrier may come round to another subtask of
	// the head before that one has taken the snapshot.
	RingNode
	// SinkNode commits what it gets.
	SinkNode
)

// String names the kind.
func (k NodeKind) String() string {
	switch k {
	case SourceNode:
		return "source"
	case FlatNode:
		return "flat"
	case KeyedNode:
		return "keyed"
	case ConnectNode:
		return "connect"
	case RuledNode:
		return "ruled"
	case LoopNode:
		return "loop"
	case RingNode:
		return "ring"
	case SinkNode:
		return "sink"
	}
	return fmt.Sprintf("NodeKind(%d)", int(k))
}

// isKeyed reports whether the nodes have keyed state.
func (k NodeKind) isKeyed() bool {
	return k == KeyedNode || k == ConnectNode || k == RuledNode || k == LoopNode
}

// isLoop reports whether the nodes send tokens round.
func (k NodeKind) isLoop() bool { return k == LoopNode || k == RingNode }

// Link leads from the output of a node into an input of another.
type Link struct {
	From int
	How  graph.Partitioner
}

// Token is a record of a flow: where it comes from, and an ID that no other
// token has, made of the IDs of those that it was made of and the nodes that
// did.
type Token struct {
	Split, N uint64
	ID       uint64
	// Left is how often it still goes round the loop that it is in.
	Left uint64
}

// Origin is the record of a source that a token was made of.
func (t Token) Origin() uint64 { return t.Split<<32 | t.N }

// mixed is a hash of numbers (SplitMix64, Steele et al. 2014).
func mixed(of ...uint64) uint64 {
	var h uint64
	for _, x := range of {
		h += x + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// timerGate stands for a gate in the IDs of what timers emit.
const timerGate = 2

// first is the token of a source's record.
func first(split, n uint64) Token { return Token{Split: split, N: n, ID: mixed(split, n)} }

// entering is a token as it comes to a node from outside: at a loop, with how
// often it goes round.
func (v *Node) entering(t Token, node int) Token {
	t.Left = 0
	if v.Kind.isLoop() {
		t.Left = mixed(t.ID, uint64(node), 55) % 4
	}
	return t
}

// round is a token of a loop when it has gone round once more.
func round(t Token, node int) Token {
	return Token{Split: t.Split, N: t.N, ID: mixed(t.ID, uint64(node), 44), Left: t.Left - 1}
}

// fanOut is how many tokens a node makes of one.
var fanOut = [8]int{0, 1, 1, 1, 1, 1, 1, 2}

// childrenOf are the tokens that node i makes of one that came by a gate.
func childrenOf(t Token, node, gate int) []Token {
	h := mixed(t.ID, uint64(node), uint64(gate))
	children := make([]Token, fanOut[h>>60&7])
	for i := range children {
		children[i] = Token{Split: t.Split, N: t.N, ID: mixed(h, uint64(i))}
	}
	return children
}

// waits reports whether a node with timers keeps something back for a token:
// what, and for how long behind its timestamp.
func waits(t Token, node, gate int) (kept Token, millis int64, ok bool) {
	h := mixed(t.ID, uint64(node), uint64(gate), 77)
	return Token{Split: t.Split, N: t.N, ID: h}, int64(h >> 32 % 3000), h%4 == 0
}

// keyOf is the key of a token at a node. Both inputs of a connect have the same.
func (o Options) keyOf(t Token, node int) uint64 { return mixed(t.ID, uint64(node), 99) % o.Keys }

// uid is the UID of a node.
func (f *Flow) uid(node int) ids { return ids(fmt.Sprintf("%s-%d", f.Nodes[node].Kind, node)) }

// channel names the channels of a link into a gate of a node.
func (f *Flow) channel(l Link, to, gate int) Channel {
	c := Channel{From: f.uid(l.From), To: f.uid(to), Input: gate}
	if f.Nodes[l.From].Kind == SourceNode {
		c.From = f.stampsOf(l.From)
	}
	switch f.Nodes[to].Kind {
	case SinkNode:
		c.To = f.countsOf(to)
	case LoopNode, RingNode:
		c.To = f.enterOf(to)
	case SourceNode, FlatNode, KeyedNode, ConnectNode, RuledNode:
	}
	return c
}

// enterOf is the UID of what stands in front of a loop, headOf that of its head.
func (f *Flow) enterOf(loop int) ids { return ids(fmt.Sprintf("enter-%d", loop)) }

func (f *Flow) headOf(loop int) ids { return ids(fmt.Sprintf("head-%d", loop)) }

// againOf is the UID of what sends tokens of a loop round once more.
func (f *Flow) againOf(loop int) ids {
	if f.Nodes[loop].Kind == RingNode {
		return ids(fmt.Sprintf("again-%d", loop))
	}
	return f.uid(loop)
}

// bodyOf is the UID of what stands behind the head of a loop.
func (f *Flow) bodyOf(loop int) ids {
	if f.Nodes[loop].Kind == RingNode {
		return ids(fmt.Sprintf("body-%d", loop))
	}
	return f.uid(loop)
}

// stampsOf is the UID of what makes watermarks behind a source, countsOf of
// what is chained in front of a sink.
func (f *Flow) stampsOf(source int) ids { return ids(fmt.Sprintf("%s-%d", Stamps, source)) }

func (f *Flow) countsOf(sink int) ids { return ids(fmt.Sprintf("counts-%d", sink)) }

// nodeOf finds a node by its UID.
func (f *Flow) nodeOf(uid ids) (int, bool) {
	for i := range f.Nodes {
		if f.uid(i) == uid {
			return i, true
		}
	}
	return 0, false
}

// Splits is the number of splits of all sources.
func (f *Flow) Splits() (n int) {
	for _, v := range f.Nodes {
		n += v.Splits
	}
	return n
}

// sourceOf is the source that has a split.
func (f *Flow) sourceOf(split int) *Node {
	for i := range f.Nodes {
		if v := &f.Nodes[i]; v.Kind == SourceNode && split < v.First+v.Splits {
			return v
		}
	}
	panic(fmt.Sprintf("no source has split %d", split))
}

// IsUnbounded reports whether a source never ends.
func (f *Flow) IsUnbounded() bool {
	return slices.ContainsFunc(f.Nodes, func(v Node) bool { return v.Unbounded })
}

// DrawFlow draws a graph.
func DrawFlow(r *rand.Rand) *Flow {
	between := func(low, high int) int { return low + r.IntN(high-low+1) }
	f := &Flow{}
	sources, inner, sinks := between(1, 3), between(1, 5), between(1, 2)
	unbounded := r.IntN(4) == 0
	first := 0
	for i := range sources {
		v := Node{Kind: SourceNode, First: first, Splits: between(1, 3), Records: uint64(between(10, 120/sources))}
		v.Unbounded = unbounded && (i == 0 || r.IntN(2) == 0)
		first += v.Splits
		f.Nodes = append(f.Nodes, v)
	}
	used := map[int]bool{}
	// pick draws n different nodes, rather those that nobody has used.
	pick := func(n int) (all []int) {
		order := r.Perm(len(f.Nodes))
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case used[a] == used[b] || r.IntN(3) == 0:
				return 0
			case used[a]:
				return 1
			}
			return -1
		})
		for _, i := range order[:min(n, len(order))] {
			used[i] = true
			all = append(all, i)
		}
		return all
	}
	links := func(n int, how func() graph.Partitioner) (all []Link) {
		for _, from := range pick(n) {
			all = append(all, Link{From: from, How: how()})
		}
		return all
	}
	hash := func() graph.Partitioner { return graph.Hash }
	broadcast := func() graph.Partitioner { return graph.Broadcast }
	loose := func() graph.Partitioner { return []graph.Partitioner{graph.Forward, graph.Rebalance}[r.IntN(2)] }
	width := func() int { return []int{1, 1, 1, 2, 2, 3}[r.IntN(6)] }
	for range inner {
		v := Node{Kind: []NodeKind{FlatNode, KeyedNode, KeyedNode, ConnectNode, RuledNode, LoopNode, RingNode}[r.IntN(7)], Unchained: r.IntN(3) == 0}
		switch v.Kind {
		case FlatNode:
			v.Inputs[0] = links(width(), loose)
		case KeyedNode, LoopNode, RingNode:
			v.Inputs[0] = links(width(), hash)
		case ConnectNode:
			v.Inputs[0], v.Inputs[1] = links(width(), hash), links(width(), hash)
		case RuledNode:
			v.Inputs[0], v.Inputs[1] = links(width(), hash), links(1, broadcast)
		case SourceNode, SinkNode:
		}
		v.HasTimers = (v.Kind == KeyedNode || v.Kind == ConnectNode) && r.IntN(2) == 0
		f.Nodes = append(f.Nodes, v)
	}
	// The sinks share what nobody has used, and each has at least one.
	var open []int
	for i := range f.Nodes {
		if !used[i] {
			open = append(open, i)
		}
	}
	for len(open) < sinks {
		open = append(open, r.IntN(len(f.Nodes)))
	}
	for i := range sinks {
		v := Node{Kind: SinkNode, Unchained: r.IntN(3) == 0}
		for n, from := range open {
			if n%sinks == i {
				v.Inputs[0] = append(v.Inputs[0], Link{From: from, How: loose()})
			}
		}
		f.Nodes = append(f.Nodes, v)
	}
	// At most one link into a node is forward, so that all others may have another
	// parallelism at their ends.
	for i := range f.Nodes {
		forward := false
		for n := range f.Nodes[i].Inputs[0] {
			l := &f.Nodes[i].Inputs[0][n]
			if forward && l.How == graph.Forward {
				l.How = graph.Rebalance
			}
			forward = forward || l.How == graph.Forward
		}
	}
	return f.Rescaled(r, 4)
}

// Rescaled gives every node another parallelism, of at most limit.
func (f *Flow) Rescaled(r *rand.Rand, limit int) *Flow {
	g := &Flow{Nodes: slices.Clone(f.Nodes)}
	for i := range g.Nodes {
		v := &g.Nodes[i]
		v.Parallelism = 1 + r.IntN(limit)
		// A forward link keeps the parallelism of where it comes from.
		for _, l := range v.Inputs[0] {
			if l.How == graph.Forward {
				v.Parallelism = g.Nodes[l.From].Parallelism
			}
		}
	}
	return g
}

// Widest is the largest parallelism.
func (f *Flow) Widest() (n int) {
	for _, v := range f.Nodes {
		n = max(n, v.Parallelism)
	}
	return n
}

// fetches is about how many fetches the busiest subtask makes.
func (f *Flow) fetches(batchMax uint64) (n int) {
	for _, v := range f.Nodes {
		if v.Kind == SourceNode {
			n = max(n, (v.Splits+v.Parallelism-1)/v.Parallelism*int((v.Records+batchMax-1)/batchMax))
		}
	}
	return n
}

// String prints the graph, a line for each node.
func (f *Flow) String() string {
	var b strings.Builder
	for i, v := range f.Nodes {
		fmt.Fprintf(&b, "  %s x%d", f.uid(i), v.Parallelism)
		if v.Kind == SourceNode {
			fmt.Fprintf(&b, ": %d splits of %d records, unbounded %t", v.Splits, v.Records, v.Unbounded)
		}
		for gate, links := range v.Inputs {
			for n, l := range links {
				if n == 0 {
					fmt.Fprintf(&b, "; input %d:", gate)
				}
				fmt.Fprintf(&b, " %s by %s", f.uid(l.From), l.How)
			}
		}
		if v.Unchained {
			b.WriteString(", not chained")
		}
		if v.HasTimers {
			b.WriteString(", timers")
		}
		b.WriteString("\n")
	}
	return b.String()
}
