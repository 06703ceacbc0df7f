package coordinator

import "testing"

// TestRetention is Flink's table: a finished job needs nothing any more, and
// only a job that failed or was cancelled may leave checkpoints.
func TestRetention(t *testing.T) {
	for retention, kept := range map[Retention]map[JobStatus]bool{
		DeleteOnCancellation:      {FailedStatus: true},
		RetainOnCancellation:      {FailedStatus: true, CanceledStatus: true},
		NoExternalizedCheckpoints: {},
	} {
		for _, end := range []JobStatus{FinishedStatus, CanceledStatus, FailedStatus} {
			if got := retention.Keeps(end); got != kept[end] {
				t.Errorf("retention %d of a job that is %s keeps: %v, want %v", retention, end, got, kept[end])
			}
		}
	}
}
