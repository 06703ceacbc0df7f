package sim

import (
	"fmt"
	"io"
	"time"
)

// tailLines is how much of the trace a failure prints.
const tailLines = 50

// trace hashes everything that happens, and keeps the last lines.
type trace struct {
	hash uint64
	tail [tailLines]string
	n    int
	now  *time.Duration
	out  io.Writer // every line, if not nil
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func newTrace(now *time.Duration, out io.Writer) *trace {
	return &trace{hash: fnvOffset, now: now, out: out}
}

// item notes that an item of the heap runs. Items are many and say little, so
// they are hashed and not printed.
func (t *trace) item(at time.Duration, label string) {
	t.word(uint64(at))
	t.text(label)
}

func (t *trace) word(w uint64) { t.hash = (t.hash ^ w) * fnvPrime }

func (t *trace) text(s string) {
	h := t.hash
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	t.hash = h
}

// add writes one line.
func (t *trace) add(format string, args ...any) {
	line := fmt.Sprintf("%11.6f ", t.now.Seconds()) + fmt.Sprintf(format, args...)
	t.text(line)
	t.tail[t.n%tailLines] = line
	t.n++
	if t.out != nil {
		fmt.Fprintln(t.out, line)
	}
}

// last are the last lines, oldest first.
func (t *trace) last() []string {
	var out []string
	for i := max(0, t.n-tailLines); i < t.n; i++ {
		out = append(out, t.tail[i%tailLines])
	}
	return out
}

// event notes an event that a machine was given: its kind, since its content
// was traced where it came from.
func (t *trace) event(d *jobDriver, event any) {
	t.text(d.jm.name)
	t.text(fmt.Sprintf("%T", event))
}
