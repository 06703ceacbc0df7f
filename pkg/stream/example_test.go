package stream_test

import (
	"fmt"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/connector/print"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// Reading is one line of the input.
type Reading struct {
	Sensor  string
	Celsius float64
}

// Hottest is the highest temperature of a sensor so far.
type Hottest struct {
	Sensor  string
	Celsius float64
}

// tooHot takes readings that are out of range, beside the main output.
var tooHot = stream.NewTag[Reading]("too-hot")

// hottest emits a sensor's highest temperature whenever it rises.
type hottest struct {
	max state.Value[float64]
	hot stream.Collector[Reading]
}

func newHottest() *hottest { return &hottest{} }

// Open registers the state and finds the side output.
func (h *hottest) Open(ctx *stream.Context[string]) (err error) {
	if h.max, err = state.NewValue[float64](ctx, "max"); err != nil {
		return err
	}
	h.hot, err = tooHot.Collector(ctx)
	return err
}

// Process handles one reading; the state is that of its sensor.
func (h *hottest) Process(ctx *stream.Context[string], r Reading, out stream.Collector[Hottest]) error {
	if r.Celsius > 100 {
		return h.hot.Collect(r)
	}
	max, found, err := h.max.Get()
	if err != nil || found && r.Celsius <= max {
		return err
	}
	if err := h.max.Set(r.Celsius); err != nil {
		return err
	}
	return out.Collect(Hottest{ctx.Key(), r.Celsius})
}

func buildHottest(env *stream.Env) error {
	readings := stream.From(env, "readings", file.JSONLines[Reading]("readings.jsonl"))
	valid := stream.Filter(readings, func(r Reading) (bool, error) { return r.Sensor != "", nil })
	bySensor := stream.KeyBy(valid, func(r Reading) string { return r.Sensor })
	changes := stream.Process(bySensor, "hottest", newHottest)
	stream.To(changes, "out", file.ExactlyOnce[Hottest]("hottest"))
	stream.To(stream.SideOutput(changes, tooHot), "alarms", print.Sink[Reading](), stream.WithParallelism(1))
	return nil
}

// A job is a function that describes its dataflow. A program gives it to
// stream.Main; here only its graph is built.
func Example() {
	env := stream.NewEnv("hottest")
	if err := buildHottest(env); err != nil {
		fmt.Println(err)
		return
	}
	program, err := env.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, edge := range program.Graph.Edges {
		fmt.Printf("%s -%s-> %s\n", edge.From, edge.Partitioner, edge.To)
	}
	// Output:
	// readings -forward-> filter-1
	// filter-1 -hash-> hottest
	// hottest -forward-> out
	// hottest -rebalance-> alarms
}

// A program's main function does nothing else than call Main.
func ExampleMain() {
	stream.Main("hottest", buildHottest)
}

// The first mistake is kept, and Build says what to do.
func ExampleEnv_Build() {
	env := stream.NewEnv("mistake")
	lines := stream.From(env, "lines", file.Lines("input.txt"))
	stream.To(lines, "lines", print.Sink[string]())
	_, err := env.Build()
	fmt.Println(err)
	// Output:
	// two operators have the UID "lines": the source at example_test.go:100 and the sink at example_test.go:101; give each its own, state is found by it
}
