package operator

import (
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

// Program is a JobGraph together with the code of its operators: what a job
// binary has in memory after its build function ran. It is immutable, and may
// be used by the subtasks of many goroutines at once.
type Program struct {
	Graph graph.JobGraph
	// Nodes has the code of each operator of the graph.
	Nodes map[ids.OperatorUID]*Node
	// Edges has the code of each edge, by index into Graph.Edges.
	Edges []*EdgeCode
}

// Node makes the instances of one operator.
type Node struct {
	UID ids.OperatorUID
	// New makes the instance of one subtask. out gives the collector of an
	// output by its tag ("" is the main one): its dynamic type is
	// Collector[U] for the output's record type U, never nil (records of an
	// output that nobody consumes are dropped).
	New func(out func(tag string) any) (Instance, error)
	// Discard makes a Collector[U] that drops records, for each output by tag.
	Discard map[string]any
	// Tee makes one Collector[U] of several, for each output by tag.
	Tee map[string]func(collectors []any) any
}

// Instance is one operator in one subtask.
type Instance struct {
	Operator Operator
	// Inputs are the collectors by input gate; the dynamic type of each is
	// Collector[T] for the gate's record type T. Empty for sources.
	Inputs []any
	// Source is set for sources only.
	Source SourceRunner
	// Committing is set for two-phase sinks only.
	Committing Committing
	// Timed is set for operators that have timers.
	Timed Timed
	// Generator is set for operators that make watermarks.
	Generator WatermarkGenerator
	// Idle, if set, is called when the subtask has no input waiting.
	Idle func() error
}

// EdgeCode is the code of an edge that is not chained.
type EdgeCode struct {
	// NewInput makes the decode loop in front of a Collector[T].
	NewInput func(collector any) Input
	// NewStampedInput stands in for NewInput where the records of the edge
	// carry their timestamp; nil where they do not.
	NewStampedInput func(collector any, t *Time) Input
	// NewOutput makes a Collector[T] that encodes into the writer's channels.
	NewOutput func(w *Writer) any
	// NewGrouper tells whose the edge's records are; nil where that is not
	// decided by a key.
	NewGrouper func(maxParallelism int) Grouper
}

// Input is the head of a chain seen from outside: it decodes records and
// pushes them into the first operator.
type Input interface {
	// Process consumes records from data until its end or until pace says
	// stop, and returns how many bytes and records it consumed: always whole
	// records. After an error the subtask has failed.
	Process(data []byte, pace *Pace) (consumed, records int, err error)
}
