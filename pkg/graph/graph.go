package graph

import (
	"github.com/weirstream/weir/pkg/ids"
)

// OperatorKind says what an operator does, for display and for rules of chaining.
type OperatorKind string

// The kinds of operator.
const (
	SourceOperator  OperatorKind = "source"
	SinkOperator    OperatorKind = "sink"
	MapOperator     OperatorKind = "map"
	FlatMapOperator OperatorKind = "flatMap"
	FilterOperator  OperatorKind = "filter"
	ReduceOperator  OperatorKind = "reduce"
	ProcessOperator OperatorKind = "process"
	ConnectOperator OperatorKind = "connect"
	// TimestampsOperator gives records their event time, and makes watermarks.
	TimestampsOperator OperatorKind = "timestamps"
	// IterateOperator is the head of a loop: it has a feedback edge, and passes on
	// what comes from outside and what comes round.
	IterateOperator OperatorKind = "iterate"
)

// Partitioner says how records of an edge are spread over the channels.
type Partitioner string

// The partitioners.
const (
	// Forward keeps subtask i's records on subtask i: needs equal parallelism, and allows chaining.
	Forward Partitioner = "forward"
	// Hash sends a record to the owner of its key's group.
	Hash Partitioner = "hash"
	// Rebalance deals records out in turn.
	Rebalance Partitioner = "rebalance"
	// Broadcast sends every record to every subtask.
	Broadcast Partitioner = "broadcast"
)

// Operator is one node of a JobGraph.
type Operator struct {
	UID  ids.OperatorUID
	Kind OperatorKind
	// Parallelism is the number of subtasks; 0 means the job's default.
	Parallelism int
	// Options are the connector's options as they take part in the
	// fingerprint: sorted by key, no secrets.
	Options []Option
	// InputTypes and OutputType describe the record types with their codec's schema.
	OutputType string
	// KeyType is the key's schema for keyed operators, else empty.
	KeyType string
	// Bounded is set for sources that end.
	Bounded bool
	// Stateful operators and sources and sinks must carry a user-given UID.
	// TwoPhase sinks commit after a checkpoint is published.
	TwoPhase bool
	// CommitsRevocable is set for two-phase sinks that can take back what they
	// have committed: a job that has only such may go back past a commit.
	CommitsRevocable bool
	// ChainingDisabled starts a new vertex at this operator.
	ChainingDisabled bool
	// DescribesStates says that States are all that the operator registers.
	// Else nothing is known of its states before it runs.
	DescribesStates bool
	States          []State
}

// State is a state that an operator registers: what the JobManager compares
// with a checkpoint before anything starts.
type State struct {
	// Name and Kind are those under which it is stored.
	Name, Kind    string
	Codec, Schema string
	KeySchema     string
}

// Option is one connector option.
type Option struct{ Key, Value string }

// Edge connects an output of one operator to an input of another.
type Edge struct {
	From ids.OperatorUID
	// Output is the side output's tag, empty for the main output.
	Output string
	To     ids.OperatorUID
	// Input is the number of the input gate at To: 0, or 1 for the second input of a Connect.
	// Several edges into one gate are a Union.
	Input       int
	Partitioner Partitioner
	// Type is the schema of the records on the edge.
	Type string
	// Feedback is set for the edge that closes a loop: from the loop's body back
	// to its head.
	Feedback bool
}

// JobGraph is the logical graph as submitted. Operators and edges are in the
// order in which the program made them.
type JobGraph struct {
	Name           string
	MaxParallelism int // number of key groups; 0 means keygroup.DefaultMaxParallelism
	Operators      []Operator
	Edges          []Edge
}

// Vertex is a chain of operators that run together in one subtask.
type Vertex struct {
	ID ids.VertexID
	// Chain lists the operators in topological order; the first is the head.
	// All edges between two members are Forward edges and stay in memory.
	Chain       []ids.OperatorUID
	Parallelism int
	// Inputs are the physical edges into the head, in order; Outputs those out of any member.
	Inputs, Outputs []int // indexes into ExecutionGraph.Edges
	// Name is for display: the UIDs joined by " -> ".
	Name string
}

// PhysicalEdge is a JobGraph edge that crosses vertices. Its channels are
// numbered from*consumers+to for all-to-all partitioners, and by subtask for
// Forward. A feedback edge may lead from a vertex to itself.
type PhysicalEdge struct {
	// Index is the position in ExecutionGraph.Edges and names the edge in subscriptions.
	Index    int
	Edge     Edge
	From, To ids.VertexID
}

// ExecutionGraph is the JobGraph expanded by chaining and parallelism: a value.
// Vertices are in topological order, feedback edges left out.
type ExecutionGraph struct {
	Name           string
	MaxParallelism int
	Vertices       []Vertex
	Edges          []PhysicalEdge
	// Job is the graph that was expanded, with parallelism filled in.
	Job JobGraph
}
