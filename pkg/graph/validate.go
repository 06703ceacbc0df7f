package graph

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
)

// Bounds of a graph. A graph comes over the network: without them a small
// message could ask for tables that fill the memory of the JobManager.
const (
	// operatorsMax is far above what anybody writes by hand and what one
	// JobManager could show.
	operatorsMax = 4096
	// statesMax is of one operator.
	statesMax = 4096
	// edgesMax allows every operator a wide union.
	edgesMax = 4 * operatorsMax
)

// Validate says what is wrong with a job graph and what to do about it, or
// nil. A parallelism of 0 stands for the job's default and is checked once it
// is known, by Expand.
func Validate(g JobGraph) error {
	if err := validateSize(g); err != nil {
		return err
	}
	if err := validateOperators(g); err != nil {
		return err
	}
	byUID := indexOperators(g)
	if err := validateEdges(g, byUID); err != nil {
		return err
	}
	if err := validateGates(g, byUID); err != nil {
		return err
	}
	order, err := topologicalOrder(g, byUID)
	if err != nil {
		return err
	}
	return validateLoops(g, byUID, order)
}

func validateSize(g JobGraph) error {
	if len(g.Operators) > operatorsMax {
		return fmt.Errorf("job has %d operators: at most %d are allowed; split it into several jobs", len(g.Operators), operatorsMax)
	}
	if len(g.Edges) > edgesMax {
		return fmt.Errorf("job has %d edges: at most %d are allowed; split it into several jobs", len(g.Edges), edgesMax)
	}
	if g.MaxParallelism < 0 || g.MaxParallelism > keygroup.MaxParallelismLimit {
		return fmt.Errorf("max parallelism is %d: set it between 1 and %d, or leave it out for %d",
			g.MaxParallelism, keygroup.MaxParallelismLimit, keygroup.DefaultMaxParallelism)
	}
	return nil
}

// validateOperators checks each operator for itself, and that names are unique.
func validateOperators(g JobGraph) error {
	seen := make(map[ids.OperatorUID]int, len(g.Operators))
	sources := 0
	for i, op := range g.Operators {
		if op.UID == "" {
			return fmt.Errorf("operator %d (%s) has no UID: give it a name that stays the same between versions of the program", i, op.Kind)
		}
		if err := op.UID.Validate(); err != nil {
			return err
		}
		if first, taken := seen[op.UID]; taken {
			return fmt.Errorf("two operators have the UID %q: operator %d (%s) and operator %d (%s); give each its own, state is found by it",
				op.UID, first, g.Operators[first].Kind, i, op.Kind)
		}
		seen[op.UID] = i
		if !op.Kind.isKnown() {
			return fmt.Errorf("operator %q has the unknown kind %q: build the program and the cluster from the same version", op.UID, op.Kind)
		}
		if op.Parallelism < 0 {
			return fmt.Errorf("operator %q has parallelism %d: set 1 or more, or leave it out for the job's default", op.UID, op.Parallelism)
		}
		if limit := effectiveMaxParallelism(g); op.Parallelism > limit {
			return fmt.Errorf("operator %q has parallelism %d, above the job's max parallelism %d: lower it, or raise max parallelism before the first checkpoint",
				op.UID, op.Parallelism, limit)
		}
		if op.Kind == SourceOperator {
			sources++
		}
	}
	if sources == 0 {
		return errors.New("job has no source: add one with stream.From")
	}
	return nil
}

func (k OperatorKind) isKnown() bool {
	switch k {
	case SourceOperator, SinkOperator, MapOperator, FlatMapOperator, FilterOperator,
		ReduceOperator, ProcessOperator, ConnectOperator, TimestampsOperator, IterateOperator:
		return true
	}
	return false
}

func (p Partitioner) isKnown() bool {
	switch p {
	case Forward, Hash, Rebalance, Broadcast:
		return true
	}
	return false
}

func validateEdges(g JobGraph, byUID map[ids.OperatorUID]int) error {
	for i, e := range g.Edges {
		from, ok := byUID[e.From]
		if !ok {
			return fmt.Errorf("edge %d leaves operator %q, which the job does not have: add the operator or remove the edge", i, e.From)
		}
		to, ok := byUID[e.To]
		if !ok {
			return fmt.Errorf("edge %d leads to operator %q, which the job does not have: add the operator or remove the edge", i, e.To)
		}
		producer, consumer := g.Operators[from], g.Operators[to]
		switch {
		case producer.Kind == SinkOperator:
			return fmt.Errorf("edge from sink %q to %q: a sink has no output; take the stream in front of the sink", e.From, e.To)
		case consumer.Kind == SourceOperator:
			return fmt.Errorf("edge from %q to source %q: a source has no input; union the two streams instead", e.From, e.To)
		case !e.Partitioner.isKnown():
			return fmt.Errorf("edge from %q to %q has the unknown partitioner %q: build the program and the cluster from the same version",
				e.From, e.To, e.Partitioner)
		case e.Input < 0 || e.Input > 1 || e.Input == 1 && consumer.Kind != ConnectOperator:
			return fmt.Errorf("edge from %q to %q enters input %d, which a %s does not have: use a connect for two inputs",
				e.From, e.To, e.Input, consumer.Kind)
		case e.Partitioner == Hash && consumer.KeyType == "":
			return fmt.Errorf("edge from %q to %q is hash partitioned, but %q has no key type: put a KeyBy in front of it", e.From, e.To, e.To)
		case e.Partitioner == Forward && producer.Parallelism != 0 && consumer.Parallelism != 0 &&
			producer.Parallelism != consumer.Parallelism:
			return forwardParallelismError(producer, consumer)
		}
	}
	return nil
}

// validateLoops checks the feedback edges: each closes a loop of its own.
func validateLoops(g JobGraph, byUID map[ids.OperatorUID]int, order []int) error {
	closed := make([]bool, len(g.Operators))
	for _, e := range g.Edges {
		if !e.Feedback {
			continue
		}
		head := g.Operators[byUID[e.To]]
		switch {
		case head.Kind != IterateOperator:
			return fmt.Errorf("feedback edge from %q leads to %q, a %s: only the head of a loop takes what comes round", e.From, e.To, head.Kind)
		case e.Partitioner != Hash:
			return fmt.Errorf("feedback edge from %q to %q is %s: it has to be %s partitioned, so that the loop can be rescaled", e.From, e.To, e.Partitioner, Hash)
		}
		closed[byUID[e.To]] = true
	}
	loopOf := make(map[int]ids.OperatorUID)
	for i, op := range g.Operators {
		if op.Kind != IterateOperator {
			continue
		}
		if !closed[i] {
			return fmt.Errorf("loop %q has no feedback: return a stream from its body that leads back", op.UID)
		}
		for _, j := range loopBody(g, byUID, order, i) {
			if j != i && g.Operators[j].Kind == IterateOperator {
				return fmt.Errorf("loop %q is inside of loop %q: loops cannot be nested, since neither would know when the other is empty; make one loop of both",
					g.Operators[j].UID, op.UID)
			}
			if other, inside := loopOf[j]; inside {
				return fmt.Errorf("operator %q is inside of loops %q and %q: each would wait for the other to be empty; make one loop of both",
					g.Operators[j].UID, other, op.UID)
			}
			loopOf[j] = op.UID
		}
	}
	return nil
}

// loopBody lists the operators of a loop: those that records reach from its
// head and that lead back to it.
func loopBody(g JobGraph, byUID map[ids.OperatorUID]int, order []int, head int) []int {
	reached, leads := make([]bool, len(g.Operators)), make([]bool, len(g.Operators))
	reached[head] = true
	out := make([][]int, len(g.Operators))
	for _, e := range g.Edges {
		from, to := byUID[e.From], byUID[e.To]
		if !e.Feedback {
			out[from] = append(out[from], to)
		} else if to == head {
			leads[from] = true
		}
	}
	for _, i := range order {
		for _, to := range out[i] {
			reached[to] = reached[to] || reached[i]
		}
	}
	var body []int
	for _, i := range slices.Backward(order) {
		for _, to := range out[i] {
			leads[i] = leads[i] || leads[to]
		}
		if reached[i] && leads[i] {
			body = append(body, i)
		}
	}
	return body
}

func forwardParallelismError(producer, consumer Operator) error {
	return fmt.Errorf("forward edge from %q (parallelism %d) to %q (parallelism %d): give both the same parallelism, or rebalance between them",
		producer.UID, producer.Parallelism, consumer.UID, consumer.Parallelism)
}

// validateGates checks that every input gate that an operator has is fed.
func validateGates(g JobGraph, byUID map[ids.OperatorUID]int) error {
	fed := make([][2]bool, len(g.Operators))
	for _, e := range g.Edges {
		if !e.Feedback {
			fed[byUID[e.To]][e.Input] = true
		}
	}
	for i, op := range g.Operators {
		switch {
		case op.Kind == SourceOperator:
		case op.Kind == ConnectOperator && fed[i] != [2]bool{true, true}:
			missing := 0
			if fed[i][0] {
				missing = 1
			}
			return fmt.Errorf("connect %q has nothing on input %d: connect it to two streams", op.UID, missing)
		case !fed[i][0]:
			return fmt.Errorf("%s %q has no input: attach it to a stream, or remove it", op.Kind, op.UID)
		}
	}
	return nil
}

func indexOperators(g JobGraph) map[ids.OperatorUID]int {
	byUID := make(map[ids.OperatorUID]int, len(g.Operators))
	for i, op := range g.Operators {
		byUID[op.UID] = i
	}
	return byUID
}

func effectiveMaxParallelism(g JobGraph) int {
	if g.MaxParallelism == 0 {
		return keygroup.DefaultMaxParallelism
	}
	return g.MaxParallelism
}

// topologicalOrder lists the operators so that every edge leads forwards. Of
// those that are free to come next the one declared first does: a program that
// is written from its sources to its sinks keeps its order.
func topologicalOrder(g JobGraph, byUID map[ids.OperatorUID]int) ([]int, error) {
	waiting := make([]int, len(g.Operators)) // inputs not yet placed
	consumers := make([][]int, len(g.Operators))
	for _, e := range g.Edges {
		if e.Feedback {
			continue
		}
		from, to := byUID[e.From], byUID[e.To]
		waiting[to]++
		consumers[from] = append(consumers[from], to)
	}
	free := &intHeap{}
	for i, n := range waiting {
		if n == 0 {
			heap.Push(free, i)
		}
	}
	order := make([]int, 0, len(g.Operators))
	for free.Len() > 0 {
		i := heap.Pop(free).(int)
		order = append(order, i)
		for _, c := range consumers[i] {
			if waiting[c]--; waiting[c] == 0 {
				heap.Push(free, c)
			}
		}
	}
	if len(order) < len(g.Operators) {
		for i, n := range waiting {
			if n > 0 {
				return nil, fmt.Errorf("operator %q is on or behind a cycle of edges: only stream.Iterate makes one; remove the edge that leads back", g.Operators[i].UID)
			}
		}
	}
	return order, nil
}

// intHeap is a heap of operator positions, smallest first.
type intHeap []int

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *intHeap) Push(x any) { *h = append(*h, x.(int)) }

// Pop implements heap.Interface.
func (h *intHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
