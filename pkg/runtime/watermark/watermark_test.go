package watermark_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// TestValveScripts runs transcripts of what arrives on which channel.
func TestValveScripts(t *testing.T) {
	var v *watermark.Valve
	datadriven.RunTest(t, "testdata/valve", func(t *testing.T, d *datadriven.TestData) string {
		var ch int
		var w int64
		d.MaybeScanArgs(t, "ch", &ch)
		d.MaybeScanArgs(t, "at", &w)
		switch d.Cmd {
		case "new":
			v = watermark.NewValve(ch)
		case "watermark":
			v.Watermark(ch, w)
		case "idle", "active":
			v.Status(ch, d.Cmd == "idle")
		case "end":
			v.End(ch)
		default:
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		at, idle := v.Current()
		return fmt.Sprintf("%s idle=%t\n", word(at), idle)
	})
}

// TestGeneratorScripts runs transcripts of records and ticks.
func TestGeneratorScripts(t *testing.T) {
	var g *watermark.Generator
	var times []watermark.SplitTime
	datadriven.RunTest(t, "testdata/generator", func(t *testing.T, d *datadriven.TestData) string {
		var delay, idleness, at, now int64
		split := int64(watermark.NoSplit)
		d.MaybeScanArgs(t, "delay", &delay)
		d.MaybeScanArgs(t, "idleness", &idleness)
		d.MaybeScanArgs(t, "at", &at)
		d.MaybeScanArgs(t, "now", &now)
		d.MaybeScanArgs(t, "split", &split)
		switch d.Cmd {
		case "new":
			g = watermark.NewGenerator(delay, idleness)
		case "record":
			return fmt.Sprintf("wasIdle=%t\n", g.Record(split, at))
		case "tick":
			g.Tick(now, split, !d.HasArg("busy"), d.HasArg("held"))
		case "snapshot":
			times = g.Snapshot()
			return fmt.Sprintln(times)
		case "restore":
			g.Restore(times)
		default:
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		return fmt.Sprintf("%s idle=%t\n", word(g.Watermark()), g.Idle())
	})
}

func word(w int64) string {
	switch w {
	case watermark.None:
		return "none"
	case watermark.Max:
		return "max"
	}
	return fmt.Sprint(w)
}

// TestI11ValveAgainstModel: whatever arrives, the watermark never goes back,
// and never runs ahead of a channel that is active.
func TestI11ValveAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "channels")
		v := watermark.NewValve(n)
		marks, idle, ended := make([]int64, n), make([]bool, n), make([]bool, n)
		for i := range marks {
			marks[i] = watermark.None
		}
		last := int64(watermark.None)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			ch := rapid.IntRange(0, n-1).Draw(t, "channel")
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				idle[ch] = !idle[ch]
				v.Status(ch, idle[ch])
			case 1:
				ended[ch] = true
				v.End(ch)
			default:
				w := rapid.Int64Range(0, 50).Draw(t, "watermark")
				marks[ch] = max(marks[ch], w)
				v.Watermark(ch, w)
			}
			got, _ := v.Current()
			if got < last {
				t.Fatalf("went back from %d to %d", last, got)
			}
			lowest := int64(watermark.Max)
			for i := range marks {
				if !idle[i] && !ended[i] {
					lowest = min(lowest, marks[i])
				}
			}
			if got > last && lowest != watermark.Max && got != lowest {
				t.Fatalf("rose to %d, the active channels are at %d or above", got, lowest)
			}
			if lowest != watermark.Max && got < lowest {
				t.Fatalf("stays at %d although all active channels have %d", got, lowest)
			}
			last = got
		}
	})
}
