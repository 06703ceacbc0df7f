package stream_test

import (
	"fmt"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// Limit says from which temperature on readings of a sensor are reported.
type Limit struct {
	Sensor  string
	Celsius float64
}

// alarms reports readings above the limit of their sensor, and counts them.
type alarms struct {
	limits *state.Broadcast[string, float64]
	count  state.Value[int64]
}

func newAlarms() *alarms { return &alarms{} }

// Open registers the states.
func (a *alarms) Open(ctx *stream.Context[string]) (err error) {
	if a.limits, err = state.NewBroadcast[string, float64](ctx, "limits"); err != nil {
		return err
	}
	a.count, err = state.NewValue[int64](ctx, "count")
	return err
}

// Process handles a reading: it may read the limits.
func (a *alarms) Process(_ *stream.Context[string], r Reading, out stream.Collector[Reading]) error {
	limit, found, err := a.limits.Get(r.Sensor)
	if err != nil || !found || r.Celsius < limit {
		return err
	}
	n, _, err := a.count.Ref()
	if err != nil {
		return err
	}
	*n++
	return out.Collect(r)
}

// ProcessBroadcast handles a new limit, in every subtask: it may change them.
func (a *alarms) ProcessBroadcast(side *state.BroadcastSide, l Limit, _ stream.Collector[Reading]) error {
	return a.limits.Set(side, l.Sensor, l.Celsius)
}

func ExampleConnectKeyedBroadcast() {
	env := stream.NewEnv("alarms")
	limits := stream.From(env, "limits", file.JSONLines[Limit]("limits.jsonl"))
	readings := stream.From(env, "readings", file.JSONLines[Reading]("readings.jsonl"))
	bySensor := stream.KeyBy(readings, func(r Reading) string { return r.Sensor })
	reported := stream.ConnectKeyedBroadcast(bySensor, limits, "alarms", newAlarms)
	stream.To(reported, "out", file.ExactlyOnce[Reading]("alarms"))

	program, err := env.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, edge := range program.Graph.Edges {
		fmt.Printf("%s -%s-> %s\n", edge.From, edge.Partitioner, edge.To)
	}
	// Output:
	// readings -hash-> alarms
	// limits -broadcast-> alarms
	// alarms -forward-> out
}
