package runtime

import (
	"bytes"
	"strings"
)

const (
	// tailBytesMax is how much of an executor's stderr goes with its exit
	// report, and the same again from where a panic began: a stack of some
	// dozen calls with room around it.
	tailBytesMax = 16 << 10
)

// panicMarks begin the lines with which the Go runtime gives up.
var panicMarks = [][]byte{[]byte("panic: "), []byte("fatal error: "), []byte("runtime: goroutine stack exceeds")}

// tail keeps the last lines of a text, and those from the last panic on,
// which a dump of many goroutines would push out. One goroutine uses it.
type tail struct {
	last  []byte
	first []byte // from the panic's line on, nil before one
	// firstFull: what was cut off first is no longer all there is.
	firstFull bool
}

// add takes one line without its end.
func (t *tail) add(line []byte) {
	for _, mark := range panicMarks {
		// The newest: an older line that only looked like one would hide it.
		if bytes.HasPrefix(line, mark) {
			t.first, t.firstFull = []byte{}, false
		}
	}
	if t.first != nil && !t.firstFull {
		t.first = appendLine(t.first, line)
		if len(t.first) > tailBytesMax {
			t.first, t.firstFull = t.first[:tailBytesMax], true
		}
	}
	t.last = appendLine(t.last, line)
	if over := len(t.last) - tailBytesMax; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
}

func appendLine(to, line []byte) []byte { return append(append(to, line...), '\n') }

// String is what goes with the exit report.
func (t *tail) String() string {
	last := string(t.last)
	if t.first == nil {
		return strings.ToValidUTF8(last, "\uFFFD")
	}
	if !t.firstFull {
		// All since the panic is in first; what led to it may be in last.
		before, _, found := strings.Cut(last, string(t.first))
		if found {
			return strings.ToValidUTF8(before+string(t.first), "\uFFFD")
		}
	}
	return strings.ToValidUTF8(string(t.first)+"\n…\n"+last, "\uFFFD")
}
