package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/stream"
)

// stampedSeen emits each record with the timestamp that it came with.
type stampedSeen struct{}

func (stampedSeen) Open(*stream.Context[uint64]) error { return nil }

func (stampedSeen) Process(ctx *stream.Context[uint64], v uint64, out stream.Collector[string]) error {
	if ctx.Timestamp() == stream.NoTimestamp {
		return out.Collect(fmt.Sprintf("%d@none", v))
	}
	return out.Collect(fmt.Sprintf("%d@%d", v, ctx.Timestamp()))
}

// TestTimestampsTravelWithRecords: over edges of every kind, and past those
// that were given the same records without.
func TestTimestampsTravelWithRecords(t *testing.T) {
	forEach(t, "1@10 1@10 1@none 2@20 2@20 2@none", func(t *testing.T, parallelism int) []string {
		return sorted(t, parallelism, func(env *stream.Env) stream.Stream[string] {
			numbers := stream.From(env, "numbers", valuesOf[uint64](1, 2))
			stamped := stream.AssignTimestamps(numbers, "time", func(v uint64) int64 { return int64(10 * v) })
			seen := func(s stream.Stream[uint64], uid string) stream.Stream[string] {
				byValue := stream.KeyBy(s, func(v uint64) uint64 { return v })
				return stream.Process(byValue, uid, func() stampedSeen { return stampedSeen{} })
			}
			same := func(v uint64) (uint64, error) { return v, nil }
			return stream.Union(
				seen(stamped, "direct"),
				seen(stream.Map(stamped.Rebalance(), same), "mapped"),
				seen(stream.Map(numbers, same), "without"),
			)
		})
	})
}

// TestTimestampOptionsAreChecked: an option that would do nothing is refused.
func TestTimestampOptionsAreChecked(t *testing.T) {
	for want, build := range map[string]func(stream.Stream[uint64]) stream.Stream[uint64]{
		"are for stream.AssignTimestamps": func(s stream.Stream[uint64]) stream.Stream[uint64] {
			return stream.Map(s, func(v uint64) (uint64, error) { return v, nil }, stream.WithIdleness(time.Second))
		},
		"whole milliseconds": func(s stream.Stream[uint64]) stream.Stream[uint64] {
			return stream.AssignTimestamps(s, "time", func(uint64) int64 { return 0 }, stream.WithOutOfOrderness(time.Microsecond))
		},
		"the function is nil": func(s stream.Stream[uint64]) stream.Stream[uint64] {
			return stream.AssignTimestamps(s, "time", nil)
		},
	} {
		env := stream.NewEnv("test")
		stream.To(build(stream.From(env, "numbers", valuesOf[uint64](1))), "out", &collected[uint64]{})
		if _, err := env.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
