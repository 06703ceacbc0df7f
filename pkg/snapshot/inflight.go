package snapshot

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/pb"
)

// InFlight refers to the records that were in flight on channels of one
// subtask when a barrier overtook them (Flink's channel state), or that came
// round a loop behind it.
type InFlight struct {
	// Handle has all parts, one after the other.
	Handle StateHandle
	Parts  []ChannelPart
}

// ChannelPart is what was in flight on one channel, stored by one of its ends:
// encoded records one after the other. The channel delivers what the consumer
// stored before what the producer stored.
type ChannelPart struct {
	// Edge is the place of the channel's edge in the execution graph.
	Edge int
	// Producer and Consumer are the subtasks at the ends.
	Producer, Consumer int32
	// Output: it waited at the producer.
	Output bool
	// Offset and Length say where it is in the handle, in bytes.
	Offset, Length int64
}

// EmittedWatermark is the last watermark, in milliseconds since the Unix epoch,
// that a subtask emitted on an edge before the barrier, and whether it was idle.
type EmittedWatermark struct {
	Edge      int
	Watermark int64
	Idle      bool
}

// EdgeState is what must be known of an edge to give away what was in flight on it.
type EdgeState struct {
	// Name is unique in the graph and the same in every version of the program
	// that has the edge.
	Name string
	// Type is the schema of its records, Partitioner how they are spread.
	Type, Partitioner string
	// Producers and Consumers are the parallelisms of its ends.
	Producers, Consumers int
	// Watermark is the lowest that a producer which was not idle had emitted
	// before its barrier: where the channels begin, behind what was in flight.
	Watermark    int64
	HasWatermark bool
}

// ToProto converts the records in flight.
func (f InFlight) ToProto() *pb.InFlight {
	return &pb.InFlight{Handle: f.Handle.ToProto(), Parts: mapSlice(f.Parts, ChannelPart.toProto)}
}

// InFlightFromProto converts and checks records in flight: every part is in
// the file, and behind the one before.
func InFlightFromProto(p *pb.InFlight) (InFlight, error) {
	h, err := StateHandleFromProto(p.GetHandle())
	if err != nil {
		return InFlight{}, fmt.Errorf("records in flight: %w", err)
	}
	f := InFlight{Handle: h}
	end := int64(0)
	for _, part := range p.GetParts() {
		c := ChannelPart{
			Edge: int(part.GetEdge()), Producer: part.GetProducer(), Consumer: part.GetConsumer(), Output: part.GetOutput(),
			Offset: part.GetOffset(), Length: part.GetLength(),
		}
		if c.Edge < 0 || c.Producer < 0 || c.Consumer < 0 {
			return InFlight{}, fmt.Errorf("records in flight on channel %d to %d of edge %d, which cannot be", c.Producer, c.Consumer, c.Edge)
		}
		if c.Offset < end || c.Length < 0 || c.Length > h.Size-c.Offset {
			return InFlight{}, fmt.Errorf("records in flight at %d to %d of a file of %d bytes", c.Offset, c.Offset+c.Length, h.Size)
		}
		end = c.Offset + c.Length
		f.Parts = append(f.Parts, c)
	}
	return f, nil
}

func (c ChannelPart) toProto() *pb.ChannelPart {
	return &pb.ChannelPart{
		Edge: int32(c.Edge), Producer: c.Producer, Consumer: c.Consumer, Output: c.Output, Offset: c.Offset, Length: c.Length,
	}
}

// ToProto converts the watermark.
func (w EmittedWatermark) ToProto() *pb.EmittedWatermark {
	return &pb.EmittedWatermark{Edge: int32(w.Edge), Watermark: w.Watermark, Idle: w.Idle}
}

// EmittedWatermarkFromProto converts and checks a watermark.
func EmittedWatermarkFromProto(p *pb.EmittedWatermark) (EmittedWatermark, error) {
	if p.GetEdge() < 0 {
		return EmittedWatermark{}, fmt.Errorf("watermark of edge %d, which cannot be", p.GetEdge())
	}
	return EmittedWatermark{Edge: int(p.GetEdge()), Watermark: p.GetWatermark(), Idle: p.GetIdle()}, nil
}

// ToProto converts the description of an edge.
func (e EdgeState) ToProto() *pb.EdgeState {
	return &pb.EdgeState{
		Name: e.Name, Type: e.Type, Partitioner: e.Partitioner, Producers: int32(e.Producers), Consumers: int32(e.Consumers),
		HasWatermark: e.HasWatermark, Watermark: e.Watermark,
	}
}

// EdgeStateFromProto converts and checks the description of an edge.
func EdgeStateFromProto(p *pb.EdgeState) (EdgeState, error) {
	if p.GetName() == "" {
		return EdgeState{}, errors.New("edge has no name")
	}
	if p.GetProducers() < 1 || p.GetConsumers() < 1 {
		return EdgeState{}, fmt.Errorf("edge %s leads from %d subtasks to %d", p.GetName(), p.GetProducers(), p.GetConsumers())
	}
	return EdgeState{
		Name: p.GetName(), Type: p.GetType(), Partitioner: p.GetPartitioner(), Producers: int(p.GetProducers()), Consumers: int(p.GetConsumers()),
		HasWatermark: p.GetHasWatermark(), Watermark: p.GetWatermark(),
	}, nil
}

// checkInFlight refuses records in flight on channels that the checkpoint does
// not describe.
func (c *CompletedCheckpoint) checkInFlight() error {
	for _, f := range c.InFlight {
		for _, p := range f.Parts {
			if p.Edge >= len(c.Edges) {
				return fmt.Errorf("records in flight on edge %d of %d", p.Edge, len(c.Edges))
			}
			e := &c.Edges[p.Edge]
			if int(p.Producer) >= e.Producers || int(p.Consumer) >= e.Consumers {
				return fmt.Errorf("records in flight from subtask %d to %d of edge %s, which leads from %d subtasks to %d",
					p.Producer, p.Consumer, e.Name, e.Producers, e.Consumers)
			}
		}
	}
	return nil
}
