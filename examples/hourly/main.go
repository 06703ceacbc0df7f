// Command hourly counts departures by airport and hour, by the time that is
// written in each flight, exactly once.
//
// For every airport and every hour in which somebody left it, it writes one
// line when the hour is over:
//
//	{"hour":"2001-01-01T07:00:00Z","origin":"DTW","flights":3}
//
// An hour is over when the watermark has passed its end: flights may come up
// to ten minutes out of order. Later ones are counted in the job's log.
//
//	go run ./examples/hourly --output /tmp/hourly
package main

import (
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/connector/throttle"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// Flags of the program; stream.Main parses them.
var (
	input  = flag.String("input", "examples/flights/flights.jsonl", "read flights from `FILE`")
	output = flag.String("output", "hourly-output", "write counts to files in `DIR`")
	rate   = flag.Int("rate", 0, "read `N` flights per second, 0 for as fast as possible")
)

// Line is what the job needs of one line of the input.
type Line struct {
	Date   string `json:"date"`
	Origin string `json:"origin"`
}

// dateLayout is how the input writes times; they are taken as UTC.
const dateLayout = "2006/01/02 15:04"

// Departure is a flight with its time, in milliseconds since the Unix epoch.
type Departure struct {
	Time   int64
	Origin string
}

// Window is one hour at one airport.
type Window struct {
	Hour   int64 // its begin, in milliseconds since the Unix epoch
	Origin string
}

// Departures are the flights of one window.
type Departures struct {
	Hour    string `json:"hour"`
	Origin  string `json:"origin"`
	Flights int64  `json:"flights"`
}

// hour is the size of a window in milliseconds.
var hour = time.Hour.Milliseconds()

func main() {
	stream.Main("hourly", build)
}

// build describes the job. The texts are UIDs: state is found by them when the
// program is restarted or replaced by a newer one.
func build(env *stream.Env) error {
	// In one piece: the file is in the order of time, and event time waits for
	// pieces that have not been read, so in several all hours would end last.
	flights := file.JSONLines[Line](*input, file.WithSplitBytes(math.MaxInt64))
	lines := stream.From(env, "flights", throttle.PerSecond(flights, *rate))
	departures := stream.Map(lines, parse)
	timed := stream.AssignTimestamps(departures, "time", func(d Departure) int64 { return d.Time },
		stream.WithOutOfOrderness(10*time.Minute), stream.WithIdleness(time.Minute))
	byWindow := stream.KeyBy(timed, func(d Departure) Window { return Window{Hour: d.Time - d.Time%hour, Origin: d.Origin} })
	stream.To(stream.Process(byWindow, "count", newCounter), "out", file.ExactlyOnce[Departures](*output))
	return nil
}

// parse finds out the time of a flight. A line without one is not cured by a restart.
func parse(l Line) (Departure, error) {
	at, err := time.Parse(dateLayout, l.Date)
	if err != nil {
		return Departure{}, operator.Permanentf("flight from %s: %w", l.Origin, err)
	}
	return Departure{Time: at.UnixMilli(), Origin: l.Origin}, nil
}

// counter counts the flights of each window.
type counter struct {
	flights state.Value[int64]
}

func newCounter() *counter { return &counter{} }

// Open registers the state.
func (c *counter) Open(ctx *stream.Context[Window]) (err error) {
	c.flights, err = state.NewValue[int64](ctx, "flights")
	return err
}

// Process counts a flight, and sets the timer at the window's end: once, for
// all flights of a window set the same one.
func (c *counter) Process(ctx *stream.Context[Window], d Departure, _ stream.Collector[Departures]) error {
	end := ctx.Key().Hour + hour
	if ctx.Watermark() >= end {
		_, err := fmt.Fprintf(ctx.Output(), "late: a flight from %s at %s\n", d.Origin, time.UnixMilli(d.Time).UTC())
		return err
	}
	flights, _, err := c.flights.Get()
	if err != nil {
		return err
	}
	if err := c.flights.Set(flights + 1); err != nil {
		return err
	}
	return ctx.Timers().RegisterEventTime(end)
}

// OnTimer writes what a window came to, and forgets it.
func (c *counter) OnTimer(ctx *stream.Context[Window], _ stream.Timer, out stream.Collector[Departures]) error {
	flights, _, err := c.flights.Get()
	if err != nil {
		return err
	}
	if err := c.flights.Clear(); err != nil {
		return err
	}
	window := ctx.Key()
	return out.Collect(Departures{
		Hour: time.UnixMilli(window.Hour).UTC().Format(time.RFC3339), Origin: window.Origin, Flights: flights,
	})
}
