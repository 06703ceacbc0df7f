package simjob

import (
	"fmt"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// InFlight are the records that a checkpoint has because barriers overtook
// them: what left an operator and did not reach the next.
type InFlight struct {
	// Tokens of a flow, by channel.
	Tokens map[Channel][]Token
	// Keys of the counting job, on their way to the counter.
	Keys []uint64
	// Events of the stateful job, by whom they are on their way to.
	Events map[ids][]Event
	// Counts on their way to the sink of either.
	Counts []Count
}

// Channel names the channels of an edge.
type Channel struct {
	From, To ids
	Input    int
}

// Len is the number of records.
func (f *InFlight) Len() int {
	n := len(f.Keys) + len(f.Counts)
	for _, all := range f.Tokens {
		n += len(all)
	}
	for _, all := range f.Events {
		n += len(all)
	}
	return n
}

// collect is a Collector of any kind of record.
type collect[T any] func(T)

// Collect implements operator.Collector.
func (c collect[T]) Collect(v T) error {
	c(v)
	return nil
}

// readInFlight decodes records that were in flight on an edge, as the
// consumer would.
func (o Options) readInFlight(p *operator.Program, edge graph.Edge, data []byte, into *InFlight) error {
	var code *operator.EdgeCode
	for i, e := range p.Graph.Edges {
		if e.From == edge.From && e.To == edge.To && e.Input == edge.Input && e.Output == edge.Output {
			code = p.Edges[i]
		}
	}
	if code == nil {
		return fmt.Errorf("the job has no edge from %s to %s", edge.From, edge.To)
	}
	var collector any
	at := Channel{From: edge.From, To: edge.To, Input: edge.Input}
	switch {
	case o.Flow != nil:
		collector = operator.Collector[Token](collect[Token](func(t Token) { into.Tokens[at] = append(into.Tokens[at], t) }))
	case edge.To == Out:
		collector = operator.Collector[Count](collect[Count](func(n Count) { into.Counts = append(into.Counts, n) }))
	case o.Stateful:
		collector = operator.Collector[Event](collect[Event](func(e Event) { into.Events[edge.To] = append(into.Events[edge.To], e) }))
	default:
		collector = operator.Collector[uint64](collect[uint64](func(k uint64) { into.Keys = append(into.Keys, k) }))
	}
	var input operator.Input
	if code.NewStampedInput != nil {
		input = code.NewStampedInput(collector, &operator.Time{})
	} else {
		input = code.NewInput(collector)
	}
	for len(data) > 0 {
		n, _, err := input.Process(data, &operator.Pace{})
		if err != nil {
			return fmt.Errorf("records in flight from %s to %s: %w", edge.From, edge.To, err)
		}
		data = data[n:]
	}
	return nil
}

// heldEvents are those in flight to an operator. An error names one that is
// held twice, or that its source has not read.
func (s *Stored) heldEvents(to ids) (map[Event]bool, error) {
	held := map[Event]bool{}
	for _, e := range s.Flight.Events[to] {
		if held[e] || e.N >= s.Positions[e.Split] {
			return held, fmt.Errorf("event %v is in flight to %s, twice or before it was read", e, to)
		}
		held[e] = true
	}
	return held, nil
}

// withhold takes the output records in flight out of what has come out.
func (s *Stored) withhold(out map[Count]bool) error {
	for _, n := range s.Flight.Counts {
		if !out[n] {
			return fmt.Errorf("%d of key %x is in flight to the sink, twice or though nothing gave it", n.N, n.Key)
		}
		delete(out, n)
	}
	return nil
}
