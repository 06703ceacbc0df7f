package stream_test

import (
	"fmt"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/stream"
)

// Walk is a number on its way to 1, by Collatz's rule.
type Walk struct {
	Start, At uint64
	Steps     int
}

var arrived = stream.NewTag[Walk]("arrived")

// collatz takes one step, and lets a walk out that has come to 1.
type collatz struct{ arrived stream.Collector[Walk] }

func newCollatz() *collatz { return &collatz{} }

// Open registers no state: a walk carries its own.
func (c *collatz) Open(ctx *stream.Context[uint64]) (err error) {
	c.arrived, err = arrived.Collector(ctx)
	return err
}

// Process takes a step.
func (c *collatz) Process(_ *stream.Context[uint64], w Walk, out stream.Collector[Walk]) error {
	switch {
	case w.At == 1:
		return c.arrived.Collect(w)
	case w.At%2 == 0:
		w.At /= 2
	default:
		w.At = 3*w.At + 1
	}
	w.Steps++
	return out.Collect(w)
}

func ExampleIterate() {
	env := stream.NewEnv("collatz")
	walks := stream.From(env, "walks", file.JSONLines[Walk]("walks.jsonl"))
	byPlace := stream.KeyBy(walks, func(w Walk) uint64 { return w.At })
	done := stream.Iterate(byPlace, "loop", func(loop stream.KeyedStream[uint64, Walk]) (feedback, out stream.Stream[Walk]) {
		step := stream.Process(loop, "step", newCollatz)
		return step, stream.SideOutput(step, arrived)
	})
	stream.To(done, "out", file.ExactlyOnce[Walk]("steps"))

	program, err := env.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, edge := range program.Graph.Edges {
		fmt.Printf("%s -%s-> %s, feedback %t\n", edge.From, edge.Partitioner, edge.To, edge.Feedback)
	}
	// Output:
	// walks -hash-> loop, feedback false
	// loop -hash-> step, feedback false
	// step -hash-> loop, feedback true
	// step -forward-> out, feedback false
}
