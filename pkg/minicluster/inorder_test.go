package minicluster_test

import (
	"testing"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// TestUnalignedCheckpointsPassEdgesThatAlign has barriers that overtake, in front of
// vertices that have to process up to them: one behind a forward edge, one with
// rules, and between them edges that align for their sake. A checkpoint that does not
// get through fails the job.
func TestUnalignedCheckpointsPassEdgesThatAlign(t *testing.T) {
	output := t.TempDir()
	env := stream.NewEnv("in order")
	const records = 400
	numbers := stream.From(env, "numbers", datagen.Sequence(records, datagen.WithRate(200)))
	laps := stream.Map(numbers.Rebalance(), func(v uint64) (lap, error) { return lap{Start: v}, nil }, stream.WithUID("laps"))
	same := stream.Map(laps.Forward(), func(v lap) (lap, error) { return v, nil }, stream.WithUID("same"), stream.DisableChaining())
	rules := stream.Map(stream.From(env, "rules", datagen.Sequence(20, datagen.WithRate(10))), func(v uint64) (lap, error) { return lap{Start: v}, nil })
	ruled := stream.ConnectKeyedBroadcast(stream.KeyBy(same, lapKey), rules.Broadcast(), "ruled", newRuled)
	again := stream.ConnectKeyedBroadcast(stream.KeyBy(stream.Process(stream.KeyBy(ruled, lapKey), "pass", newPass), lapKey), ruled.Broadcast(), "again", newRuled)
	stream.To(again, "out", file.ExactlyOnce[lap](output))
	runLaps(t, env, map[string]string{
		"execution.checkpointing.interval":                     "20 ms",
		"execution.checkpointing.timeout":                      "10 s",
		"execution.checkpointing.unaligned.enabled":            "true",
		"execution.checkpointing.tolerable-failed-checkpoints": "0",
	}, output, records)
}

// ruled passes on what is keyed, and takes rules that change nothing.
type ruled struct{}

func newRuled() *ruled { return &ruled{} }

func (*ruled) Open(*stream.Context[uint64]) error { return nil }

func (*ruled) Process(_ *stream.Context[uint64], v lap, out stream.Collector[lap]) error {
	return out.Collect(v)
}

func (*ruled) ProcessBroadcast(*state.BroadcastSide, lap, stream.Collector[lap]) error { return nil }
