package align_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/align"
)

// TestAlignScripts runs the transcripts in testdata: what arrives on which
// channel, and what the subtask is told to do.
func TestAlignScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var a *align.Aligner
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var ch, n int
			d.MaybeScanArgs(t, "ch", &ch)
			d.MaybeScanArgs(t, "ckpt", &n)
			var actions []align.Action
			switch d.Cmd {
			case "new":
				kinds := slices.Repeat([]align.ChannelKind{align.Overtakable}, ch)
				if d.HasArg("kinds") {
					var names string
					d.ScanArgs(t, "kinds", &names)
					for _, name := range names {
						kinds = append(kinds, map[rune]align.ChannelKind{'o': align.Overtakable, 'i': align.InOrder, 'f': align.Feedback}[name])
					}
				}
				a = align.New(kinds)
			case "arrive":
				actions = a.Arrived(ch, barrierOf(t, d, n))
			case "barrier":
				actions = a.Barrier(ch, barrierOf(t, d, n))
			case "timeout":
				actions = a.Timeout(ids.CheckpointID(n))
			case "cancel":
				actions = a.CancelMarker(ch, ids.CheckpointID(n))
			case "abort":
				actions = a.Abort(ids.CheckpointID(n))
			case "end":
				actions = a.EndOfPartition(ch)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			var out strings.Builder
			for _, x := range actions {
				fmt.Fprintln(&out, x)
			}
			return out.String()
		})
	})
}

// barrierOf is the barrier that a line of a script names.
func barrierOf(t *testing.T, d *datadriven.TestData, n int) element.Barrier {
	b := element.Barrier{Checkpoint: ids.CheckpointID(n)}
	switch {
	case d.HasArg("unaligned"):
		b.Alignment = element.Unaligned
	case d.HasArg("at-least-once"):
		b.Alignment = element.AtLeastOnce
	}
	d.MaybeScanArgs(t, "timeout", &b.AlignedTimeout)
	return b
}

// TestI5BlockedUntilAlignmentEnds feeds random but possible histories and
// checks the aligner against a model: a snapshot is taken exactly when every
// channel has delivered its barrier, at a point where no channel has
// delivered anything behind it.
func TestI5BlockedUntilAlignmentEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		channels := rapid.IntRange(1, 5).Draw(t, "channels")
		checkpoints := rapid.IntRange(1, 6).Draw(t, "checkpoints")
		aborted := map[ids.CheckpointID]bool{}
		a := align.New(slices.Repeat([]align.ChannelKind{align.Overtakable}, channels))
		next := make([]int, channels) // barriers delivered so far
		blocked := make([]bool, channels)
		var taken []ids.CheckpointID
		apply := func(actions []align.Action) {
			for _, x := range actions {
				switch x.Kind {
				case align.Block:
					blocked[x.Channel] = true
				case align.Release:
					clear(blocked)
				case align.Snapshot:
					for ch, n := range next {
						if ids.CheckpointID(n) != x.Barrier.Checkpoint {
							t.Fatalf("snapshot %d although channel %d delivered %d barriers", x.Barrier.Checkpoint, ch, n)
						}
					}
					taken = append(taken, x.Barrier.Checkpoint)
				case align.Arm, align.Collected:
					t.Fatalf("%s, for a barrier without a timeout that collects nothing", x)
				case align.Abandon:
					if !aborted[x.Barrier.Checkpoint] {
						t.Fatalf("gave up %d although nobody aborted it", x.Barrier.Checkpoint)
					}
				}
			}
		}
		for {
			var open []int
			for ch := range channels {
				if blocked[ch] != a.IsBlocked(ch) {
					t.Fatalf("channel %d: actions say blocked=%t, IsBlocked says %t", ch, blocked[ch], a.IsBlocked(ch))
				}
				if !blocked[ch] && next[ch] < checkpoints {
					open = append(open, ch)
				}
			}
			if len(open) == 0 {
				break
			}
			if rapid.IntRange(0, 9).Draw(t, "abort?") == 0 {
				id := ids.CheckpointID(rapid.IntRange(1, checkpoints).Draw(t, "aborted"))
				aborted[id] = true
				apply(a.Abort(id))
				continue
			}
			ch := rapid.SampledFrom(open).Draw(t, "channel")
			next[ch]++
			apply(a.Barrier(ch, element.Barrier{Checkpoint: ids.CheckpointID(next[ch])}))
		}
		for i, id := range taken {
			if i > 0 && id <= taken[i-1] {
				t.Fatalf("snapshots out of order: %v", taken)
			}
		}
		for id := ids.CheckpointID(1); int(id) <= checkpoints; id++ {
			found := false
			for _, x := range taken {
				found = found || x == id
			}
			if !found && !aborted[id] {
				t.Fatalf("checkpoint %d was neither taken nor aborted; taken %v", id, taken)
			}
		}
	})
}
