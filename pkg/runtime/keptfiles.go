package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/ids"
)

// keptFiles are the directories in which the executors of a job, one after the
// other, keep files of its last checkpoints (package subtask says how many).
// They live as long as this process at most: nothing in them is synced, and
// whoever starts after it finds other slots under another name.
type keptFiles struct {
	dir string
	log *zap.Logger
	mu  struct {
		sync.Mutex
		jobs map[ids.JobID]*keptJob // those with a directory
	}
}

type keptJob struct {
	executors int       // that run
	since     time.Time // when the last one ended
	forgotten bool
}

// keptMax is how long a job's files wait for its next executor here. The
// JobManager tells when a job has ended; this is for what it could not tell,
// and longer than a job waits for slots.
const keptMax = time.Hour

// keptCheck is how often run looks: files stay that much longer at most.
const keptCheck = keptMax / 12

// run removes what has waited too long, also on a host where nothing starts any
// more, until ctx ends.
func (k *keptFiles) run(ctx context.Context) {
	ticker := time.NewTicker(keptCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.expire()
		}
	}
}

// openKeptFiles removes what an earlier process kept.
func openKeptFiles(dir string, log *zap.Logger) (*keptFiles, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove files kept of jobs: %w", err)
	}
	k := &keptFiles{dir: dir, log: log}
	k.mu.jobs = map[ids.JobID]*keptJob{}
	return k, nil
}

// acquire gives the directory of a job to an executor that starts.
func (k *keptFiles) acquire(id ids.JobID) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.mu.jobs[id]
	if j == nil {
		j = &keptJob{}
		k.mu.jobs[id] = j
	}
	j.executors++
	return k.path(id)
}

func (k *keptFiles) path(id ids.JobID) string { return filepath.Join(k.dir, string(id)) }

// release takes it back from one that has ended.
func (k *keptFiles) release(id ids.JobID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.mu.jobs[id]
	j.executors--
	j.since = time.Now()
	if j.executors == 0 && j.forgotten {
		k.removeLocked(id)
	}
}

// forget removes the directory of a job that has ended, when nothing of it runs.
func (k *keptFiles) forget(id ids.JobID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.mu.jobs[id]
	if j == nil {
		return
	}
	j.forgotten = true
	if j.executors == 0 {
		k.removeLocked(id)
	}
}

func (k *keptFiles) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, j := range k.mu.jobs {
		if j.executors == 0 && time.Since(j.since) > keptMax {
			k.removeLocked(id)
		}
	}
}

// removeLocked deletes what is kept of a job: some hundred files of a subtask.
func (k *keptFiles) removeLocked(id ids.JobID) {
	delete(k.mu.jobs, id)
	if err := os.RemoveAll(k.path(id)); err != nil {
		k.log.Warn("files kept of a job were not removed", logfield.Job(id), logfield.File(k.path(id)), zap.Error(err))
	}
}
