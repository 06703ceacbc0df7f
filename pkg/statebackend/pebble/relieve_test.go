package pebble

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The brake on level 0 holds while compactions catch up and not a look longer;
// it ends when the state is closed, and when waiting does not help.
func TestRelieveWaitsForCompactions(t *testing.T) {
	const high = sublevelsMax
	type look struct {
		sublevels  int32
		compacting int64
	}
	busy, idle, low := look{high, 1}, look{high, 0}, look{high - 1, 1}
	times := func(n int, l look) (out []look) {
		for range n {
			out = append(out, l)
		}
		return out
	}
	for name, c := range map[string]struct {
		looks  []look // one after the other; the last goes on for ever
		closed time.Duration
		want   time.Duration
	}{
		"few sublevels":              {looks: []look{low}},
		"few and nothing under way":  {looks: []look{{0, 0}}},
		"until there are fewer":      {looks: append(times(7, busy), low), want: 7 * relieveEvery},
		"nothing under way":          {looks: []look{idle}, want: idleMax * relieveEvery},
		"between two compactions":    {looks: append(append(times(idleMax, idle), busy, idle, idle), low), want: (idleMax + 3) * relieveEvery},
		"the last one has ended":     {looks: append(times(4, busy), idle), want: (4 + idleMax) * relieveEvery},
		"compactions that never end": {looks: []look{busy}, want: relieveMax},
		"closed":                     {looks: []look{busy}, closed: 3*relieveEvery + 1, want: 3*relieveEvery + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				s.changed.L = &s.mu
				looks := c.looks
				s.level0 = func() (int32, int64) {
					if !s.mu.TryLock() {
						t.Error("the lock is held while it looks")
					} else {
						s.mu.Unlock()
					}
					l := looks[0]
					if len(looks) > 1 {
						looks = looks[1:]
					}
					return l.sublevels, l.compacting
				}
				if c.closed > 0 {
					time.AfterFunc(c.closed, func() {
						s.mu.Lock()
						defer s.mu.Unlock()
						s.closed = true
						s.changed.Broadcast()
					})
				}
				begin := time.Now()
				s.mu.Lock()
				s.relieve()
				s.mu.Unlock()
				if got := time.Since(begin); got != c.want {
					t.Errorf("it held for %s, want %s", got, c.want)
				}
			})
		})
	}
}

// What relieve looks at is the database's: every generation over the same keys
// is a sublevel, but for the first, which goes to the bottom, until a
// compaction takes them.
func TestLevel0IsCounted(t *testing.T) {
	b := New(Options{FS: vfs.NewMem()})
	options := b.lsmOptions()
	options.DisableAutomaticCompactions = true
	must(t, options.FS.MkdirAll("state", 0o700))
	db, err := lsm.Open("state/db", options)
	must(t, err)
	s := &store{backend: b, db: db, options: options, dir: "state", level0: level0Of(db)}
	for n := range int32(sublevelsMax + 2) {
		if got, compacting := s.level0(); got != max(0, n-1) || compacting != 0 {
			t.Errorf("%d sublevels after %d generations, %d compactions", got, n, compacting)
		}
		out := newTables(s)
		for key := range 3 {
			must(t, out.set(testKey(1, key), fmt.Append(nil, n)))
		}
		must(t, out.ingest())
	}
	must(t, db.Compact(t.Context(), testKey(0, 0), testKey(9, 0), false))
	if got, _ := s.level0(); got != 0 {
		t.Errorf("%d sublevels after a compaction", got)
	}
	must(t, errors.Join(db.Close(), b.Close()))
}
