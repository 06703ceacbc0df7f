package minicluster_test

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/pb"
)

// contents are the files below a directory by their names.
func contents(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = sha256.Sum256(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestI4JobThatStartsFromAnotherJobsCheckpointDeletesNothingOfIt lets a job go
// on from the retained checkpoint of a cancelled one, far beyond its own
// retention and to its end: the first job's files stay as they are, a third
// job starts from them too, and what the first had prepared and not yet
// committed when it was cancelled is in the output once.
func TestI4JobThatStartsFromAnotherJobsCheckpointDeletesNothingOfIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 2)
	const numbers = 6000
	output := t.TempDir()
	first, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{
		Parallelism: 2, Config: map[string]string{"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, first, "checkpoint 3", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 3 })
	if err := c.Cancel(ctx, first); err != nil {
		t.Fatal(err)
	}
	status, err := c.Wait(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	path := status.GetLastCheckpointPath()
	base := filepath.Dir(strings.TrimPrefix(path, "file://"))
	before := contents(t, base)
	if len(before) == 0 {
		t.Fatalf("nothing is retained of %s", describe(status))
	}

	second, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{Parallelism: 2, RestoreFrom: path})
	if err != nil {
		t.Fatal(err)
	}
	if final := finish(ctx, t, c, second); final.GetLastCheckpoint() < status.GetLastCheckpoint()+4 {
		t.Errorf("the second job took checkpoints up to %d only, the first had taken %d", final.GetLastCheckpoint(), status.GetLastCheckpoint())
	}
	checkCounts(t, output, numbers)
	if after := contents(t, base); !maps.Equal(before, after) {
		t.Errorf("of the first job there was %v and is %v", before, after)
	}

	third, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{Parallelism: 1, RestoreFrom: path})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, third, "RUNNING", func(s *pb.JobStatusResponse) bool { return s.GetStatus() == "RUNNING" })
	if err := c.Cancel(ctx, third); err != nil {
		t.Fatal(err)
	}
}
