// Command walks sends every number from 1 to -records on its way to 1, by
// Collatz's rule, round a loop: each step goes to the subtask that keeps the
// place it comes to, which counts who was there. The lines of the output, by
// their kind:
//
//   - visit: one for each step and each start, with the how manieth walk it is at that place
//   - arrived: one for each walk, with how many steps it took
package main

import (
	"flag"
	"time"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records = flag.Uint64("records", 100, "start `N` walks")
	rate    = flag.Int("rate", 0, "start `N` walks per second, 0 for no limit")
	delay   = flag.Duration("delay", 0, "take so long for every tenth step")
	output  = flag.String("output", "walks-output", "write lines to files in `DIR`")
)

// Walk is a number on its way.
type Walk struct {
	Start, At, Steps uint64
}

// Line is a line of the output.
type Line struct {
	Kind  string `json:"kind"`
	Start uint64 `json:"start"`
	At    uint64 `json:"at"`
	Count uint64 `json:"count"`
}

var lines = stream.NewTag[Line]("lines")

func main() {
	stream.Main("walks", func(env *stream.Env) error {
		walks := stream.From(env, "walks", datagen.Generate(*records, func(i uint64) Walk { return Walk{Start: i + 1, At: i + 1} },
			datagen.WithRate(*rate), datagen.WithSplits(4)))
		byPlace := stream.KeyBy(walks, func(w Walk) uint64 { return w.At })
		out := stream.Iterate(byPlace, "loop", func(loop stream.KeyedStream[uint64, Walk]) (stream.Stream[Walk], stream.Stream[Line]) {
			steps := stream.Process(loop, "steps", newSteps)
			return steps, stream.SideOutput(steps, lines)
		})
		stream.To(out, "out", file.ExactlyOnce[Line](*output))
		return nil
	})
}

// steps counts the walks at each place, and takes a step with each of them.
type steps struct {
	visits state.Value[uint64]
	lines  stream.Collector[Line]
	taken  uint64 // by this run of the subtask
}

func newSteps() *steps { return &steps{} }

// Open registers the state.
func (s *steps) Open(ctx *stream.Context[uint64]) (err error) {
	if s.lines, err = lines.Collector(ctx); err != nil {
		return err
	}
	s.visits, err = state.NewValue[uint64](ctx, "visits")
	return err
}

// Process counts a visit, and sends the walk on.
func (s *steps) Process(_ *stream.Context[uint64], w Walk, out stream.Collector[Walk]) error {
	if s.taken++; *delay > 0 && s.taken%10 == 0 {
		<-time.After(*delay)
	}
	n, _, err := s.visits.Get()
	if err != nil {
		return err
	}
	if err := s.visits.Set(n + 1); err != nil {
		return err
	}
	if err := s.lines.Collect(Line{Kind: "visit", Start: w.Start, At: w.At, Count: n + 1}); err != nil {
		return err
	}
	switch {
	case w.At == 1:
		return s.lines.Collect(Line{Kind: "arrived", Start: w.Start, Count: w.Steps})
	case w.At%2 == 0:
		w.At /= 2
	default:
		w.At = 3*w.At + 1
	}
	w.Steps++
	return out.Collect(w)
}
