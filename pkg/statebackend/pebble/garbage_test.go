package pebble

import (
	"runtime/debug"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const mb = 1 << 20
	for _, x := range []struct{ live, want int64 }{
		{0, 110}, {75, 110},
		{76, 112},    // one is the program's, with one of garbage
		{1075, 2110}, // its thousand have a thousand, and the backend has its own
	} {
		if got := memoryLimit(100*mb, x.live*mb); got != x.want*mb {
			t.Errorf("%d MB live beside a backend of 100: limit %d MB instead of %d", x.live, got/mb, x.want)
		}
	}
}

func TestGovernGarbageLeavesNothingBehind(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	const set = 3 << 30
	before := debug.SetMemoryLimit(set)
	defer debug.SetMemoryLimit(before)
	stop := GovernGarbage(DefaultMemoryBytes)
	stop()
	stop()
	if got := debug.SetMemoryLimit(-1); got != set {
		t.Errorf("the limit is %d after the end, %d was set before", got, set)
	}
}
