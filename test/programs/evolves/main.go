// Command evolves is one program in several versions, which differ in the types
// and names of their states. Every version finds what the one before it left: the
// function fails for good when it does not.
package main

import (
	"flag"
	"fmt"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	version = flag.String("version", "first", "be the `VERSION` first, second, dropped, incompatible, incompatible-list or incompatible-map")
	records = flag.Uint64("records", 10000, "generate `N` records")
	keys    = flag.Uint64("keys", 20, "spread them evenly over `N` keys")
	rate    = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	output  = flag.String("output", "evolves-output", "write lines to files in `DIR`")
)

// Event is a record: the n-th of its key, from 0 on.
type Event struct {
	Key, N uint64
}

// weight is what a record adds to the sum.
func (e Event) weight() int32 { return int32((e.N*31 + e.Key*17) % 1009) }

// Line is a line of the output: what the state holds with a record.
type Line struct {
	Key   uint64 `json:"key"`
	Count int64  `json:"count"`
	Sum   int64  `json:"sum"`
	Worst int64  `json:"worst"`
	// Since counts the records since the second version: 0 in the first.
	Since int64 `json:"since"`
	// Seen is what the operator's other state holds, -1 without it.
	Seen int64 `json:"seen"`
}

// First is the state of the first version.
type First struct {
	Count    int32
	DelaySum int64
	Carrier  string
	Worst    int32
}

// Second has a field more, one less, one renamed, two of more bits, and another order.
type Second struct {
	Worst float64
	Since int64
	Sum   int64 `weir:"Sum,alias=DelaySum"`
	Count int64
}

// Incompatible has a field that cannot take what the first version stored.
type Incompatible struct {
	Count    string
	DelaySum int64
	Carrier  string
	Worst    int32
}

func main() {
	stream.Main("evolves", func(env *stream.Env) error {
		each := max(*records/max(*keys, 1), 1)
		events := stream.From(env, "events", datagen.Generate(*records, func(i uint64) Event {
			return Event{Key: i / each, N: i % each}
		}, datagen.WithRate(*rate), datagen.WithSplits(int(*keys))))
		byKey := stream.KeyBy(events, func(e Event) uint64 { return e.Key })
		var lines stream.Stream[Line]
		switch *version {
		case "first", "incompatible-list", "incompatible-map":
			lines = stream.Process(byKey, "stats", newStats(true, addFirst))
		case "second":
			lines = stream.Process(byKey, "stats", newStats(true, addSecond))
		case "dropped":
			lines = stream.Process(byKey, "stats", newStats(false, addFirst))
		case "incompatible":
			lines = stream.Process(byKey, "stats", newStats(true, addIncompatible))
		default:
			return fmt.Errorf("there is no version %q", *version)
		}
		settings := stream.From(env, "settings", datagen.Sequence(settingsCount, datagen.WithSplits(1)), stream.WithParallelism(1))
		byKeyAgain := stream.KeyBy(lines, func(l Line) uint64 { return l.Key })
		switch *version {
		case "second":
			lines = stream.ConnectKeyedBroadcast(byKeyAgain, settings, "marks", newMarks(makeNew, makeNew))
		case "incompatible-list":
			lines = stream.ConnectKeyedBroadcast(byKeyAgain, settings, "marks", newMarks(makeWrong, makeOld))
		case "incompatible-map":
			lines = stream.ConnectKeyedBroadcast(byKeyAgain, settings, "marks", newMarks(makeOld, makeWrong))
		default:
			lines = stream.ConnectKeyedBroadcast(byKeyAgain, settings, "marks", newMarks(makeOld, makeOld))
		}
		stream.To(lines, "out", file.ExactlyOnce[Line](*output))
		return nil
	})
}

func addFirst(s *First, e Event, line *Line) error {
	if s.Count > 0 && s.Carrier != carrier(e) {
		return operator.Permanentf("key %d: the carrier is %q, want %q", e.Key, s.Carrier, carrier(e))
	}
	s.Carrier = carrier(e)
	s.Count++
	s.DelaySum += int64(e.weight())
	s.Worst = max(s.Worst, e.weight())
	line.Count, line.Sum, line.Worst = int64(s.Count), s.DelaySum, int64(s.Worst)
	return nil
}

func carrier(e Event) string { return fmt.Sprintf("carrier-%d", e.Key) }

func addSecond(s *Second, e Event, line *Line) error {
	s.Count++
	s.Since++
	s.Sum += int64(e.weight())
	s.Worst = max(s.Worst, float64(e.weight()))
	line.Count, line.Sum, line.Worst, line.Since = s.Count, s.Sum, int64(s.Worst), s.Since
	return nil
}

func addIncompatible(s *Incompatible, _ Event, line *Line) error {
	s.Count += "1"
	line.Count = int64(len(s.Count))
	return nil
}

// stats keeps one state of a version's type, and with it another, or not.
type stats[S any] struct {
	hasSeen bool
	add     func(*S, Event, *Line) error
	stats   state.Value[S]
	seen    state.Value[int64]
}

func newStats[S any](hasSeen bool, add func(*S, Event, *Line) error) func() *stats[S] {
	return func() *stats[S] { return &stats[S]{hasSeen: hasSeen, add: add} }
}

// Open registers the states.
func (f *stats[S]) Open(ctx *stream.Context[uint64]) (err error) {
	if f.stats, err = state.NewValue[S](ctx, "stats"); err != nil || !f.hasSeen {
		return err
	}
	f.seen, err = state.NewValue[int64](ctx, "seen")
	return err
}

// Process adds a record.
func (f *stats[S]) Process(_ *stream.Context[uint64], e Event, out stream.Collector[Line]) error {
	line := Line{Key: e.Key, Seen: -1}
	s, _, err := f.stats.Ref()
	if err != nil {
		return err
	}
	if err := f.add(s, e, &line); err != nil {
		return err
	}
	if line.Count != int64(e.N)+1 {
		return operator.Permanentf("key %d: record %d is counted as %d", e.Key, e.N, line.Count)
	}
	if f.hasSeen {
		n, _, err := f.seen.Ref()
		if err != nil {
			return err
		}
		*n++
		line.Seen = *n
	}
	return out.Collect(line)
}
