//go:build e2e

package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// awaitDeclined waits for n failed checkpoints whose reason has the text.
func (c *cluster) awaitDeclined(job, reason string, n int) {
	c.t.Helper()
	var reasons []string
	if err := clidriver.Poll(c.ctx, "checkpoints that fail", func() (bool, error) {
		var taken cliresult.Checkpoints
		if err := c.Read(c.ctx, &taken, "checkpoints", job); err != nil {
			return false, err
		}
		reasons = reasons[:0]
		failed := 0
		for _, one := range taken.Checkpoints {
			if one.Status == cliresult.CheckpointFailed {
				reasons = append(reasons, one.Reason)
				if strings.Contains(one.Reason, reason) {
					failed++
				}
			}
		}
		return failed >= n, nil
	}); err != nil {
		c.t.Fatalf("%v: want %d with %q, there are %q", err, n, reason, reasons)
	}
}

// TestValueOverTheLimitDeclinesCheckpoints: the job runs on, and the reason
// says which limit it is and how large the value.
func TestValueOverTheLimitDeclinesCheckpoints(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		k := newKinds(t, 4000)
		c := start(t, append([]string{"--taskmanagers", "1", "--slots", "1"}, soon...)...)
		job := c.submit(slices.Concat([]string{"--parallelism", "1", "-D", "state.value.bytes-max=64kb"}, onBackend(backend), k.args(600, "--ballast", "100000"))...)
		c.awaitDeclined(job, "state.value.bytes-max", 3)
		status := c.statusOf(job)
		if status.Status != cliresult.Running || status.Restarts != 0 || status.LastCheckpoint != 0 {
			t.Errorf("the job is %s after %d restarts, with checkpoint %d: want it to run on without", status.Status, status.Restarts, status.LastCheckpoint)
		}
		c.cancel(job)
	})
}

// TestRefusedUploadDeclinesCheckpoints: the job runs on while the store refuses
// its files, and takes checkpoints again as soon as it does not.
func TestRefusedUploadDeclinesCheckpoints(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		k := newKinds(t, 200)
		c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "1", "--slots", "2"}, soon...)...)
		job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend(backend), k.args(600, "--ballast", "5000"))...)
		c.awaitCheckpoint(job, 1)
		lift := proxy.refuse(isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
		c.awaitDeclined(job, "AccessDenied", 2)
		refused := c.statusOf(job)
		lift()
		if refused.Status != cliresult.Running || refused.Restarts != 0 {
			t.Errorf("the job is %s after %d restarts while the store refuses its files", refused.Status, refused.Restarts)
		}
		c.awaitCheckpoint(job, refused.LastCheckpoint+1)
		if status := c.awaitStatus(job, cliresult.Finished); status.Restarts != 0 {
			t.Errorf("%d restarts", status.Restarts)
		}
		k.check(t, 2, 2)
		c.noFilesLeft(job)
	})
}
