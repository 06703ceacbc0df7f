package driver

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
)

// The two forms of a job's record, the coordinator's and the stored one, are
// converted here and nowhere else.

// FirstRecord is what a new job's record holds before anybody has claimed it.
func FirstRecord(job ids.JobID, nonce string) checkpointstore.JobRecord {
	return checkpointstore.JobRecord{Job: job, Nonce: nonce, Status: coordinator.Created.String()}
}

// ToStored makes the stored form of a record.
func ToStored(job ids.JobID, token ids.FencingToken, nonce string, r coordinator.Record) checkpointstore.JobRecord {
	stored := checkpointstore.JobRecord{
		Job: job, Token: token, Nonce: nonce,
		Status:              r.Status.String(),
		Latest:              checkpointstore.CheckpointRef(r.Latest),
		NextCheckpointBlock: r.NextCheckpointBlock,
		Savepoints:          r.Savepoints,
		StopSavepoint:       r.StopSavepoint,
		Restarts:            int64(r.Restarts),
		StartedAt:           r.StartedAt,
		EndedAt:             r.EndedAt,
	}
	for _, ref := range r.Retained {
		stored.Retained = append(stored.Retained, checkpointstore.CheckpointRef(ref))
	}
	if r.Cause != nil {
		stored.Cause = &checkpointstore.FailureCause{
			Kind: r.Cause.Kind.String(), Message: r.Cause.Message, Stack: r.Cause.Stack, Operator: r.Cause.Operator,
		}
	}
	return stored
}

// FromStored reads a stored record as the coordinator sees it. The error says
// that the record was written by a newer version.
func FromStored(stored checkpointstore.JobRecord) (coordinator.Record, error) {
	status, err := parseStatus(stored.Status)
	if err != nil {
		return coordinator.Record{}, err
	}
	r := coordinator.Record{
		Status:              status,
		Latest:              coordinator.CheckpointRef(stored.Latest),
		NextCheckpointBlock: stored.NextCheckpointBlock,
		Savepoints:          stored.Savepoints,
		StopSavepoint:       stored.StopSavepoint,
		Restarts:            int(stored.Restarts),
		StartedAt:           roundTime(stored.StartedAt),
		EndedAt:             roundTime(stored.EndedAt),
	}
	for _, ref := range stored.Retained {
		r.Retained = append(r.Retained, coordinator.CheckpointRef(ref))
	}
	if c := stored.Cause; c != nil {
		r.Cause = &coordinator.Failure{Kind: kindOfWord(c.Kind), Message: c.Message, Stack: c.Stack, Operator: c.Operator}
	}
	return r, nil
}

func parseStatus(word string) (coordinator.JobStatus, error) {
	for status := coordinator.Created; status <= coordinator.FailedStatus; status++ {
		if status.String() == word {
			return status, nil
		}
	}
	return 0, fmt.Errorf("job status %q is not known to this version", word)
}

// roundTime keeps a time as it is after a round through the store.
func roundTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// kindOfWord takes a word of a newer version for a permanent failure: a cause
// that is stored is only shown.
func kindOfWord(word string) coordinator.FailureKind {
	for kind := coordinator.LostProcess; kind < coordinator.PermanentFailure; kind++ {
		if kind.String() == word {
			return kind
		}
	}
	return coordinator.PermanentFailure
}
