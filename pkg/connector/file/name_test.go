package file

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
)

// Names are read back as they were made, whatever the UID looks like.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := writerName{
			job: ids.JobID(rapid.StringMatching(`[0-9a-f]{32}`).Draw(t, "job")),
			operator: ids.OperatorUID(rapid.OneOf(
				rapid.StringMatching(`[a-zA-Z0-9_-][a-zA-Z0-9_.-]{0,20}`),
				rapid.SampledFrom([]string{"-", "---", "part-0", "a-1.1-0-1", "x-1.1-2-n3.inprogress", "x.pending"}),
			).Draw(t, "uid")),
			attempt: ids.AttemptID{
				Token:  ids.FencingToken(rapid.Uint64().Draw(t, "token")),
				Number: rapid.Uint32().Draw(t, "number"),
			},
			subtask: rapid.IntRange(0, 1<<15).Draw(t, "subtask"),
		}
		c := committedName{
			writerName: w, checkpoint: ids.CheckpointID(rapid.Uint64().Draw(t, "checkpoint")),
			extension: rapid.SampledFrom([]string{".jsonl", ".csv", ".pending", ".inprogress"}).Draw(t, "extension"),
		}
		if got, ok := parseCommitted(c.String()); !ok || got != c {
			t.Fatalf("%s read as %+v, %t", c, got, ok)
		}
		if got, ok := parsePending(pendingName(c.String())); !ok || got != c {
			t.Fatalf("%s read as %+v, %t", pendingName(c.String()), got, ok)
		}
		n := inProgressName{writerName: w, number: rapid.Uint64().Draw(t, "file")}
		if got, ok := parseInProgress(n.String()); !ok || got != n {
			t.Fatalf("%s read as %+v, %t", n, got, ok)
		}
		if _, ok := parsePending(n.String()); ok {
			t.Fatalf("%s was taken for a pending file", n)
		}
		if _, ok := parseInProgress(pendingName(c.String())); ok {
			t.Fatalf("%s was taken for a file in progress", pendingName(c.String()))
		}
	})
}

// What only looks like one of our names is somebody else's file.
func TestForeignNames(t *testing.T) {
	const job = "0123456789abcdef0123456789abcdef"
	for _, name := range []string{
		"", ".", "part", "part-", "part-" + job, "part-" + job + "-", "part-" + job + "-out-1.1-0",
		"part-" + job + "-out-1.1-0-1",           // no extension
		"part-" + job + "-out-1.1-0-01.jsonl",    // leading zero
		"part-" + job + "-out-1.1-00-1.jsonl",    // the same
		"part-" + job + "-out-01.1-0-1.jsonl",    // the same
		"part-" + job + "-out-1.1-0-+1.jsonl",    // a sign
		"part-" + job + "-out-1.1-0-1.json.l",    // two extensions
		"part-" + job + "-out-1.1-0-1.",          // an empty one
		"part-" + job + "-out-11-0-1.jsonl",      // no attempt
		"part-" + job + "-out-1.1-0-x.jsonl",     // no checkpoint
		"part-" + job + "-1.1-0-1.jsonl",         // no UID
		"part-" + job + "--1.1-0-1.jsonl",        // an empty one
		"part-" + job + "-a/b-1.1-0-1.jsonl",     // no UID either
		"part-" + job[:31] + "-out-1.1-0-1.json", // short job
		"part-" + job[:31] + "G-out-1.1-0-1.jsonl",
		"Part-" + job + "-out-1.1-0-1.jsonl",
		"part-" + job + "-out-1.1-0-1.jsonl.bak",
	} {
		if n, ok := parseCommitted(name); ok {
			t.Errorf("%q read as %+v", name, n)
		}
		if n, ok := parsePending(pendingName(name)); ok {
			t.Errorf("%q read as %+v", pendingName(name), n)
		}
		if n, ok := parseInProgress("." + name + inProgressSuffix); ok {
			t.Errorf("%q read as %+v", "."+name+inProgressSuffix, n)
		}
	}
}
