package pebble

import (
	"runtime/debug"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const mb = 1 << 20
	for _, x := range []struct{ memory, live, want int64 }{
		{200, 0, 220}, {200, 150, 220},
		{200, 151, 222},       // one is the program's, with one of garbage
		{200, 1150, 2220},     // its thousand have a thousand, and the backend has its own
		{16, 20, 20 + 5 + 32}, // not less than the process needs, however little the backend is to take
	} {
		limit := memoryLimit(x.memory*mb, x.live*mb)
		if got := (limit + mb/2) / mb; got != x.want {
			t.Errorf("%d MB live with %d for the backend: limit %d MB instead of %d", x.live, x.memory, got, x.want)
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
