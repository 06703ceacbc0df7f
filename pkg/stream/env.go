package stream

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// Env collects the operators of one job while it is built. It belongs to the
// goroutine that builds the job.
type Env struct {
	name           string
	maxParallelism int
	nodes          []*node
	edges          []*edge
	err            error
}

// node is an operator that is being built.
type node struct {
	graph.Operator
	// site is where the program made it, for messages.
	site string
	make func(out func(tag string) any) (operator.Instance, error)
	// outputs are the outputs that somebody may consume, by tag: the main one
	// ("") and side outputs. tags lists the latter in the order of first use.
	outputs map[string]outputCode
	tags    []string
	// stamped: its records have timestamps, given by it or by an operator in front.
	stamped bool
}

// outputCode is what assembly needs of an output's record type.
type outputCode struct {
	discard any
	tee     func(collectors []any) any
}

// edge leads from an output to an input gate. Its partitioner is settled by
// Build, when the parallelism of both ends is known.
type edge struct {
	from, to    *node
	tag         string
	input       int
	partitioner graph.Partitioner // empty: forward or rebalance
	typ         string
	newInput    func(collector any) operator.Input
	// newStampedInput is nil for edges whose records carry no timestamp.
	newStampedInput func(collector any, t *operator.Time) operator.Input
	newOutput       func(p graph.Partitioner, w *operator.Writer) any
	// newGrouper is nil for edges that are not partitioned by key.
	newGrouper func(maxParallelism int) operator.Grouper
	feedback   bool
}

// NewEnv starts a job. Programs get theirs from Main; NewEnv is for tests and
// for programs that build jobs without running them.
func NewEnv(name string) *Env {
	e := &Env{name: name}
	if name == "" {
		e.fail(errors.New("the job has no name: give stream.Main one"))
	}
	return e
}

// SetMaxParallelism sets the number of key groups: the largest parallelism
// that the job can ever be given. It is fixed for the job's life. Without it,
// or with 0, it is keygroup.DefaultMaxParallelism.
func (e *Env) SetMaxParallelism(n int) { e.maxParallelism = n }

// Build checks the job and returns its graph and code. The error is the first
// mistake that was made, and says what to do about it.
func (e *Env) Build() (*operator.Program, error) {
	if e.err != nil {
		return nil, e.err
	}
	if err := e.nameOperators(); err != nil {
		return nil, err
	}
	if err := e.describeOperators(); err != nil {
		return nil, err
	}
	p := &operator.Program{
		Graph: graph.JobGraph{Name: e.name, MaxParallelism: e.maxParallelism},
		Nodes: make(map[ids.OperatorUID]*operator.Node, len(e.nodes)),
	}
	sinks := 0
	for _, n := range e.nodes {
		p.Graph.Operators = append(p.Graph.Operators, n.Operator)
		p.Nodes[n.UID] = n.code()
		if n.Kind == graph.SinkOperator {
			sinks++
		}
	}
	for _, x := range e.edges {
		partitioner := x.settledPartitioner()
		p.Graph.Edges = append(p.Graph.Edges, graph.Edge{
			From: x.from.UID, Output: x.tag, To: x.to.UID, Input: x.input, Partitioner: partitioner, Type: x.typ,
			Feedback: x.feedback,
		})
		p.Edges = append(p.Edges, &operator.EdgeCode{
			NewInput:        x.newInput,
			NewStampedInput: x.newStampedInput,
			NewOutput:       func(w *operator.Writer) any { return x.newOutput(partitioner, w) },
			NewGrouper:      x.newGrouper,
		})
	}
	if err := graph.Validate(p.Graph); err != nil {
		return nil, err
	}
	if sinks == 0 {
		return nil, errors.New("job has no sink: nothing that it computes would leave it; end a stream with stream.To")
	}
	return p, nil
}

// nameOperators gives a name to the operators without one, which stay out of
// the way of the user's names.
func (e *Env) nameOperators() error {
	taken := map[ids.OperatorUID]*node{}
	for _, n := range e.nodes {
		if n.UID == "" {
			continue
		}
		if first := taken[n.UID]; first != nil {
			return fmt.Errorf("two operators have the UID %q: the %s at %s and the %s at %s; give each its own, state is found by it",
				n.UID, first.Kind, first.site, n.Kind, n.site)
		}
		taken[n.UID] = n
	}
	count := map[graph.OperatorKind]int{}
	for _, n := range e.nodes {
		for n.UID == "" {
			count[n.Kind]++
			if uid := ids.OperatorUID(fmt.Sprintf("%s-%d", n.Kind, count[n.Kind])); taken[uid] == nil {
				n.UID = uid
				taken[uid] = n
			}
		}
	}
	return nil
}

func (n *node) code() *operator.Node {
	c := &operator.Node{
		UID: n.UID, New: n.make,
		Discard: make(map[string]any, len(n.outputs)),
		Tee:     make(map[string]func([]any) any, len(n.outputs)),
	}
	for tag, o := range n.outputs {
		c.Discard[tag], c.Tee[tag] = o.discard, o.tee
	}
	return c
}

// settledPartitioner is Flink's rule for an edge that the user said nothing
// of: forward where it is possible, else rebalance.
func (x *edge) settledPartitioner() graph.Partitioner {
	switch {
	case x.partitioner != "":
		return x.partitioner
	case x.from.Parallelism == x.to.Parallelism:
		return graph.Forward
	}
	return graph.Rebalance
}

// fail keeps the first mistake: later ones are often its consequence.
func (e *Env) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// add takes a new operator into the job and checks what can be wrong with any.
func (e *Env) add(kind graph.OperatorKind, uid string, uidRequired bool, options []Option) (*node, *settings) {
	n := &node{site: callSite(), outputs: map[string]outputCode{}}
	n.Kind = kind
	s := &settings{}
	for _, o := range options {
		if o != nil {
			o(s)
		}
	}
	switch {
	case uidRequired && s.uid != nil:
		e.fail(fmt.Errorf("the %s at %s takes its UID as an argument: leave WithUID out", kind, n.site))
	case uidRequired && uid == "":
		e.fail(fmt.Errorf("the %s at %s has no UID: give it a name that stays the same between versions of the program, state is found by it", kind, n.site))
	case s.uid != nil:
		uid = *s.uid
	}
	n.UID = ids.OperatorUID(uid)
	if uidRequired || s.uid != nil {
		if err := n.UID.Validate(); err != nil {
			e.fail(fmt.Errorf("the %s at %s: %w", kind, n.site, err))
		}
	}
	if s.parallelism != nil {
		n.Parallelism = *s.parallelism
		if n.Parallelism < 1 {
			e.fail(fmt.Errorf("%s: parallelism %d: set 1 or more, or leave it out for the job's default", n.describe(), n.Parallelism))
		}
	}
	if kind != graph.TimestampsOperator && (s.outOfOrderness != nil || s.idleness != nil) {
		e.fail(fmt.Errorf("%s: WithOutOfOrderness and WithIdleness are for stream.AssignTimestamps", n.describe()))
	}
	n.ChainingDisabled = s.chainingDisabled
	e.nodes = append(e.nodes, n)
	return n, s
}

// describe names the operator for messages while it may have no UID yet.
func (n *node) describe() string {
	if n.UID == "" {
		return fmt.Sprintf("the %s at %s", n.Kind, n.site)
	}
	return fmt.Sprintf("%s %q at %s", n.Kind, n.UID, n.site)
}

// packagePrefix starts the names of this package's functions.
const packagePrefix = "github.com/weirstream/weir/pkg/stream."

// callSite is the place in the user's program that called this package, as
// file:line without directories, which differ between hosts.
func callSite() string {
	var pcs [16]uintptr // the package's own calls are at most a few deep
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, packagePrefix) && f.File != "" {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
