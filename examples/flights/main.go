// Command flights counts late departures by airport, exactly once.
//
// For every flight it writes one line with what is known of its origin so far:
//
//	{"origin":"DTW","flights":17,"delay_sum":204,"late":5}
//
// So the output has every origin with flights = 1, 2, 3, … once each, however
// often the job was interrupted on the way.
//
//	go run ./examples/flights --output /tmp/flights
//	flinkctl submit ./examples/flights -- --input … --output … --rate 1000
package main

import (
	"flag"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/connector/throttle"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// Flags of the program; stream.Main parses them.
var (
	input  = flag.String("input", "examples/flights/flights.jsonl", "read flights from `FILE`")
	output = flag.String("output", "flights-output", "write counts to files in `DIR`")
	rate   = flag.Int("rate", 0, "read `N` flights per second, 0 for as fast as possible")
)

// Flight is what the job needs of one line of the input.
type Flight struct {
	Origin string `json:"origin"`
	// Delay of the departure in minutes; negative when it was early.
	Delay int64 `json:"delay"`
}

// Delays are the departures from one airport so far.
type Delays struct {
	Origin   string `json:"origin"`
	Flights  int64  `json:"flights"`
	DelaySum int64  `json:"delay_sum"`
	Late     int64  `json:"late"`
}

// lateMinutes is the delay above which a departure counts as late.
const lateMinutes = 15

func main() {
	stream.Main("flights", build)
}

// build describes the job. The texts are UIDs: state is found by them when the
// program is restarted or replaced by a newer one.
func build(env *stream.Env) error {
	flights := stream.From(env, "flights", throttle.PerSecond(file.JSONLines[Flight](*input), *rate))
	byOrigin := stream.KeyBy(flights, func(f Flight) string { return f.Origin })
	delays := stream.Process(byOrigin, "delays", newDelayStats)
	stream.To(delays, "out", file.ExactlyOnce[Delays](*output))
	return nil
}

// delayStats keeps the Delays of every origin. Each subtask has one of its
// own, for the origins that are its.
type delayStats struct {
	// sofar is state: it is in every checkpoint, and comes back after a failure.
	sofar state.Value[Delays]
}

func newDelayStats() *delayStats { return &delayStats{} }

// Open registers the state.
func (d *delayStats) Open(ctx *stream.Context[string]) (err error) {
	d.sofar, err = state.NewValue[Delays](ctx, "sofar")
	return err
}

// Process adds a flight to its origin.
func (d *delayStats) Process(_ *stream.Context[string], f Flight, out stream.Collector[Delays]) error {
	// Get gives the value of this flight's origin; a new origin starts at zero.
	delays, _, err := d.sofar.Get()
	if err != nil {
		return err
	}
	delays.Origin = f.Origin
	delays.Flights++
	delays.DelaySum += f.Delay
	if f.Delay > lateMinutes {
		delays.Late++
	}
	if err := d.sofar.Set(delays); err != nil {
		return err
	}
	return out.Collect(delays)
}
