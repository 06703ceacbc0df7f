package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// I1 after a fallback: checkpoints 1 to 3 were committed, the job goes back to
// 1, and what is visible then is what 1 had, wherever the last attempt, or an
// earlier try to take it back, was interrupted.
func TestTakeBackWhatIsAfterTheRestoredCheckpoint(t *testing.T) {
	const one, two, three = "out-1.1-0-1.jsonl", "out-1.1-0-2.jsonl", "out-1.1-0-3.jsonl"
	for _, c := range []struct {
		name string
		// before changes the directory with all three committed.
		before func(h *harness)
	}{
		{"all committed", func(*harness) {}},
		{"the last not yet committed", func(h *harness) { h.rename(three, pendingOf(three)) }},
		{"between link and unlink", func(h *harness) { h.link(two, pendingOf(two)) }},
		{"half taken back", func(h *harness) { h.remove(two) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			h := open(t, dir, 1, 0)
			var first []operator.Committable
			for id := ids.CheckpointID(1); id <= 3; id++ {
				h.write("a")
				done := h.persist(h.prepare(id))
				h.commit(done)
				if id == 1 {
					first = done
				}
			}
			c.before(h)
			next := open(t, dir, 2, 1) // restores checkpoint 1
			next.commit(first)
			next.expect("fallen back", one)
			again := open(t, dir, 3, 1) // and once more
			again.commit(first)
			again.expect("fallen back again", one)
			// IDs go on growing; what is committed now is never taken back.
			again.write("b")
			again.commit(again.persist(again.prepare(9)))
			again.close()
			after := open(t, dir, 4, 9)
			after.expect("restored from 9", one+" out-1.3-0-9.jsonl")
			after.close()
		})
	}
}

// A savepoint between the two checkpoints has prepared what the newer one then
// committed: a job that starts from the savepoint commits it, so it stays.
func TestTakenBackForASavepointIsPendingAgain(t *testing.T) {
	const two, three = "out-1.1-0-2.jsonl", "out-1.1-0-3.jsonl"
	for _, interrupted := range []bool{false, true} {
		dir := t.TempDir()
		h := open(t, dir, 1, 0)
		h.write("a")
		savepoint := h.persist(h.prepare(2))
		h.write("b")
		h.commit(append(savepoint, h.persist(h.prepare(3))...))
		h.expect("committed", two+" "+three)
		if interrupted {
			h.link(two, pendingOf(two))
		}
		c := h.committer.(*committer)
		for range 2 {
			err := c.Recover(t.Context(), operator.Recovery{Attempt: ids.AttemptID{Token: 1, Number: 2}, Restored: 1, Savepoints: []ids.CheckpointID{2}})
			if err != nil {
				t.Fatal(err)
			}
			h.expect("fallen back", pendingOf(two))
		}
		h.commit(savepoint) // as the job from the savepoint would
		h.expect("committed by another job", two)
	}
}

// A process that does not know yet that it was replaced commits what is taken
// back at the same time: of what a savepoint may hold a name is left.
func TestTakeBackWhileAnOldProcessCommits(t *testing.T) {
	const two = "out-1.1-0-2.jsonl"
	dir := t.TempDir()
	h := open(t, dir, 1, 0)
	h.write("a")
	savepoint := h.persist(h.prepare(2))
	c := h.committer.(*committer)
	recovery := operator.Recovery{Attempt: ids.AttemptID{Token: 1, Number: 2}, Restored: 1, Savepoints: []ids.CheckpointID{2}}
	for range 500 {
		committed := make(chan error, 1)
		go func() { committed <- c.Commit(t.Context(), savepoint) }()
		if err := c.Recover(t.Context(), recovery); err != nil {
			t.Fatal(err)
		}
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		if err := c.Recover(t.Context(), recovery); err != nil {
			t.Fatal(err)
		}
		h.expect("taken back", pendingOf(two))
	}
}

func pendingOf(name string) string { return "." + name + pendingSuffix }

// path is that of a file by the short name that list gives it.
func (h *harness) path(name string) string {
	prefix := "part-" + string(testJob) + "-"
	if name[0] == '.' {
		return filepath.Join(h.dir, "."+prefix+name[1:])
	}
	return filepath.Join(h.dir, prefix+name)
}

func (h *harness) rename(from, to string) { h.check(os.Rename(h.path(from), h.path(to))) }
func (h *harness) link(from, to string)   { h.check(os.Link(h.path(from), h.path(to))) }
func (h *harness) remove(name string)     { h.check(os.Remove(h.path(name))) }

func (h *harness) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}
