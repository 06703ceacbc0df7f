package subtask

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWindowFollowsTheRate: whatever rates are told and frames consumed, the
// producer's credit is the window less what is on its way or waits, the window
// stays within its bounds, and it comes to the size that the rate asks for.
func TestWindowFollowsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 2 << 20
		s := &Subtask{}
		s.in.windowMax = limit
		s.in.window = windowBytesFirst
		s.in.channels = []inputChannel{{window: windowBytesFirst}}
		c := &s.in.channels[0]
		credit := c.window // of the producer
		var inFlight int64
		for range rapid.IntRange(1, 300).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				s.SetInputRate(rapid.Float64Range(0, 100<<20).Draw(t, "rate"))
			case 1, 2:
				if credit > 0 { // may overdraw by one frame
					n := rapid.Int64Range(1, 40<<10).Draw(t, "frame")
					credit -= n
					inFlight += n
				}
			default:
				if inFlight > 0 {
					n := rapid.Int64Range(1, inFlight).Draw(t, "consumed")
					inFlight -= n
					credit += s.in.consume(c, n)
				}
			}
			if credit+inFlight+c.consumed != c.window {
				t.Fatalf("credit %d, in flight %d, not given back %d: together not the window of %d", credit, inFlight, c.consumed, c.window)
			}
			if c.window > limit || c.window < 0 {
				t.Fatalf("window of %d bytes", c.window)
			}
		}
		// At a steady rate the window gets there, and nothing is ever stuck.
		s.SetInputRate(5 << 20)
		for range 1000 {
			for credit > 0 {
				credit -= 28 << 10
				inFlight += 28 << 10
			}
			credit += s.in.consume(c, 28<<10)
			inFlight -= 28 << 10
			if inFlight <= 0 && credit <= 0 {
				t.Fatalf("stuck: credit %d, nothing in flight, window %d", credit, c.window)
			}
		}
		if want := s.in.window; c.window != want {
			t.Fatalf("window %d, the rate asks for %d", c.window, want)
		}
	})
}
