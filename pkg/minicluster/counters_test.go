package minicluster_test

import (
	"context"
	"testing"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/stream"
)

// TestRecordsAreCountedOncePerVertex: 1,000 records of a source are 1,000 out of
// its vertex and 1,000 into the next one, however many operators are chained to
// the source. A vertex that is the whole job has read them and sent none.
func TestRecordsAreCountedOncePerVertex(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 2)
	const numbers = 1000
	same := func(v uint64) (uint64, error) { return v, nil }
	type counts [][2]int64 // in and out of each vertex
	for name, test := range map[string]struct {
		options []stream.Option // of the map behind the source
		keyed   bool
		want    counts
	}{
		"chained":   {keyed: true, want: counts{{numbers, numbers}, {numbers, 0}}},
		"unchained": {options: []stream.Option{stream.WithParallelism(2)}, keyed: true, want: counts{{numbers, numbers}, {numbers, numbers}, {numbers, 0}}},
		"one chain": {want: counts{{numbers, 0}}},
	} {
		env := stream.NewEnv(name)
		mapped := stream.Map(stream.From(env, "numbers", datagen.Sequence(numbers)), same, test.options...)
		if test.keyed {
			byNumber := stream.KeyBy(mapped, func(v uint64) uint64 { return v })
			mapped = stream.Reduce(byNumber, "sums", func(a, b uint64) (uint64, error) { return a + b, nil })
		}
		stream.To(mapped, "out", blackhole.Sink[uint64]())
		program, err := env.Build()
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Submit(ctx, program, minicluster.JobOptions{Parallelism: 1})
		if err != nil {
			t.Fatal(err)
		}
		var have counts
		for _, v := range finish(ctx, t, c, job).GetVertices() {
			have = append(have, [2]int64{v.GetRecordsIn(), v.GetRecordsOut()})
		}
		if len(have) != len(test.want) {
			t.Errorf("%s: the vertices counted %v, want %v", name, have, test.want)
			continue
		}
		for i := range have {
			if have[i] != test.want[i] {
				t.Errorf("%s: vertex %d counted %v, want %v", name, i, have[i], test.want[i])
			}
		}
	}
}
