package graph

import (
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// ToProto makes the wire message of a job graph. wire_version is left to the
// sender, who knows which version it speaks.
func ToProto(g JobGraph) *pb.JobGraph {
	m := &pb.JobGraph{
		Name:           g.Name,
		MaxParallelism: int32(g.MaxParallelism),
		Operators:      make([]*pb.Operator, len(g.Operators)),
		Edges:          make([]*pb.Edge, len(g.Edges)),
	}
	for i, op := range g.Operators {
		o := &pb.Operator{
			Uid:              string(op.UID),
			Kind:             string(op.Kind),
			Parallelism:      int32(op.Parallelism),
			OutputType:       op.OutputType,
			KeyType:          op.KeyType,
			Bounded:          op.Bounded,
			TwoPhase:         op.TwoPhase,
			CommitsRevocable: op.CommitsRevocable,
			ChainingDisabled: op.ChainingDisabled,
			DescribesStates:  op.DescribesStates,
		}
		for _, option := range op.Options {
			o.Options = append(o.Options, &pb.Option{Key: option.Key, Value: option.Value})
		}
		for _, s := range op.States {
			o.States = append(o.States, &pb.DeclaredState{Name: s.Name, Kind: s.Kind, Codec: s.Codec, Schema: s.Schema, KeySchema: s.KeySchema})
		}
		m.Operators[i] = o
	}
	for i, e := range g.Edges {
		m.Edges[i] = &pb.Edge{
			From:        string(e.From),
			Output:      e.Output,
			To:          string(e.To),
			Input:       int32(e.Input),
			Partitioner: string(e.Partitioner),
			Type:        e.Type,
			Feedback:    e.Feedback,
		}
	}
	return m
}

// FromProto reads the wire message of a job graph and validates it: what it
// returns without an error can be expanded, whoever sent it.
func FromProto(m *pb.JobGraph) (JobGraph, error) {
	g := JobGraph{Name: m.GetName(), MaxParallelism: int(m.GetMaxParallelism())}
	// Counted before anything is copied, so that a hostile message costs nothing.
	if len(m.GetOperators()) > operatorsMax || len(m.GetEdges()) > edgesMax {
		return JobGraph{}, fmt.Errorf("job graph has %d operators and %d edges: at most %d and %d are allowed; split the job",
			len(m.GetOperators()), len(m.GetEdges()), operatorsMax, edgesMax)
	}
	for _, o := range m.GetOperators() {
		op := Operator{
			UID:              ids.OperatorUID(o.GetUid()),
			Kind:             OperatorKind(o.GetKind()),
			Parallelism:      int(o.GetParallelism()),
			OutputType:       o.GetOutputType(),
			KeyType:          o.GetKeyType(),
			Bounded:          o.GetBounded(),
			TwoPhase:         o.GetTwoPhase(),
			CommitsRevocable: o.GetCommitsRevocable(),
			ChainingDisabled: o.GetChainingDisabled(),
			DescribesStates:  o.GetDescribesStates(),
		}
		if len(o.GetStates()) > statesMax {
			return JobGraph{}, fmt.Errorf("operator %q has %d states: at most %d are allowed", op.UID, len(o.GetStates()), statesMax)
		}
		for _, s := range o.GetStates() {
			op.States = append(op.States, State{Name: s.GetName(), Kind: s.GetKind(), Codec: s.GetCodec(), Schema: s.GetSchema(), KeySchema: s.GetKeySchema()})
		}
		for _, option := range o.GetOptions() {
			op.Options = append(op.Options, Option{Key: option.GetKey(), Value: option.GetValue()})
		}
		g.Operators = append(g.Operators, op)
	}
	for _, e := range m.GetEdges() {
		g.Edges = append(g.Edges, Edge{
			From:        ids.OperatorUID(e.GetFrom()),
			Output:      e.GetOutput(),
			To:          ids.OperatorUID(e.GetTo()),
			Input:       int(e.GetInput()),
			Partitioner: Partitioner(e.GetPartitioner()),
			Type:        e.GetType(),
			Feedback:    e.GetFeedback(),
		})
	}
	if err := Validate(g); err != nil {
		return JobGraph{}, fmt.Errorf("read job graph: %w", err)
	}
	return g, nil
}
