package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
)

const (
	jobsDir    = "jobs/"
	recordName = "record"
	jobName    = "job"
)

// jobSizeMax bounds a job object: graph, arguments and configuration.
const jobSizeMax = 16 << 20

// swapAttemptsMax bounds how often a swap is sent again after its outcome was
// unknown and a read showed that nothing had changed yet. The caller, who has
// a clock, spaces out what comes after that.
const swapAttemptsMax = 3

// ClusterStore holds what a JobManager must find again after a restart: jobs,
// their records, and artifacts.
type ClusterStore struct {
	store objectstore.Store
}

// ClusterURI is the root of a cluster's objects below
// high-availability.storageDir.
func ClusterURI(haDir, clusterID string) string { return joinURI(haDir, clusterID) }

// NewClusterStore returns the store of a cluster, whose root is at ClusterURI.
func NewClusterStore(root objectstore.Store) *ClusterStore { return &ClusterStore{store: root} }

// SwapOutcome is the closed set of results of writing a record.
type SwapOutcome uint8

// The outcomes.
const (
	// Swapped: the record has our content.
	Swapped SwapOutcome = iota + 1
	// Lost: somebody else's content is there, given in Record; ours is not
	// and never will be. Compare tokens to see whether we are fenced.
	Lost
	// NotWritten: the store refused before it wrote, or the content is
	// unsound. The record is as it was.
	NotWritten
	// Unknown: the write may have happened, or may still do so, and reading
	// did not tell. Call again with the same arguments until it is known.
	Unknown
)

// String names the outcome.
func (o SwapOutcome) String() string {
	switch o {
	case Swapped:
		return "swapped"
	case Lost:
		return "lost"
	case NotWritten:
		return "not-written"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("SwapOutcome(%d)", uint8(o))
}

// SwapResult is what became of writing a record.
type SwapResult struct {
	Outcome SwapOutcome
	// Record is what is stored now: ours after Swapped, the other's after
	// Lost, otherwise not set.
	Record VersionedRecord
	// Err is the reason, after NotWritten and Unknown.
	Err error
}

// ReadRecord reads a job's record. objectstore.ErrNotExist if there is none;
// any other error means that nothing is known (I9).
func (c *ClusterStore) ReadRecord(ctx context.Context, job ids.JobID) (VersionedRecord, error) {
	name := jobObject(job, recordName)
	content, etag, err := c.store.Read(ctx, name, recordSizeMax)
	if err != nil {
		return VersionedRecord{}, fmt.Errorf("read record of job %s: %w", job, err)
	}
	record, err := DecodeRecord(content)
	if err == nil && record.Job != job {
		err = fmt.Errorf("belongs to job %s: %w", record.Job, ErrCorrupt)
	}
	if err != nil {
		return VersionedRecord{}, fmt.Errorf("read record of job %s: %s: %w", job, c.store.URI(name), err)
	}
	return VersionedRecord{JobRecord: record, ETag: etag}, nil
}

// CreateRecord writes the first record of a job, if there is none.
func (c *ClusterStore) CreateRecord(ctx context.Context, first JobRecord) SwapResult {
	return c.write(ctx, first, objectstore.IfAbsent(), "")
}

// SwapRecord replaces prev by next if the record still is prev. next has a
// nonce of its own, by which the outcome is recognised when the store does
// not tell: after a failed precondition or a lost reply the record is read
// again, and what it holds decides (I10).
//
// next is refused (NotWritten) when it would take a token or the checkpoint
// IDs back (I6, I8).
func (c *ClusterStore) SwapRecord(ctx context.Context, prev VersionedRecord, next JobRecord) SwapResult {
	refuse := func(reason string) SwapResult {
		return SwapResult{Outcome: NotWritten, Err: fmt.Errorf("swap record of job %s: %s", next.Job, reason)}
	}
	switch {
	case next.Job != prev.Job:
		return refuse(fmt.Sprintf("previous one belongs to job %s", prev.Job))
	case next.Nonce == prev.Nonce:
		return refuse("nonce is the previous one's")
	case next.Token < prev.Token:
		return refuse(fmt.Sprintf("fencing token %d is older than %d", next.Token, prev.Token))
	case next.NextCheckpointBlock < prev.NextCheckpointBlock:
		return refuse(fmt.Sprintf("checkpoint IDs would go back from %d to %d", prev.NextCheckpointBlock, next.NextCheckpointBlock))
	}
	return c.write(ctx, next, objectstore.IfMatch(prev.ETag), prev.ETag)
}

// write puts the record under a condition that holds while the stored ETag is
// prev, or while there is no record if prev is empty.
func (c *ClusterStore) write(ctx context.Context, record JobRecord, cond objectstore.Condition, prev objectstore.ETag) SwapResult {
	content, err := EncodeRecord(record)
	if err != nil {
		return SwapResult{Outcome: NotWritten, Err: err}
	}
	fail := func(outcome SwapOutcome, err error) SwapResult {
		return SwapResult{Outcome: outcome, Err: fmt.Errorf("write record of job %s: %w", record.Job, err)}
	}
	// Once any attempt had an unknown outcome, it may take effect at any later
	// moment: a plain refusal of a later attempt no longer means NotWritten.
	refused := NotWritten
	for range swapAttemptsMax {
		etag, putErr := c.store.PutIf(ctx, jobObject(record.Job, recordName), content, cond)
		if putErr == nil {
			return SwapResult{Outcome: Swapped, Record: VersionedRecord{JobRecord: record, ETag: etag}}
		}
		err = putErr
		switch {
		case errors.Is(putErr, objectstore.ErrUnknownOutcome):
			refused = Unknown
		case errors.Is(putErr, objectstore.ErrPrecondition):
		default:
			return fail(refused, putErr)
		}
		current, readErr := c.ReadRecord(ctx, record.Job)
		switch {
		case readErr == nil && current.Nonce == record.Nonce:
			return SwapResult{Outcome: Swapped, Record: current}
		case readErr == nil && (prev == "" || current.ETag != prev):
			return SwapResult{Outcome: Lost, Record: current}
		case readErr == nil, prev == "" && errors.Is(readErr, objectstore.ErrNotExist):
			// The record is still what we compare with. Sending the same
			// content under the same condition again is safe: whichever
			// arrives first makes the others fail.
			continue
		case errors.Is(readErr, objectstore.ErrNotExist):
			// The record was deleted: what we compare with cannot come back.
			return fail(NotWritten, readErr)
		}
		return fail(Unknown, errors.Join(putErr, readErr))
	}
	return fail(refused, err)
}

// Jobs lists the jobs that have a record, in order of their IDs.
func (c *ClusterStore) Jobs(ctx context.Context) ([]ids.JobID, error) {
	var jobs []ids.JobID
	for object, err := range c.store.List(ctx, jobsDir) {
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		id, file, _ := strings.Cut(strings.TrimPrefix(object.Name, jobsDir), "/")
		job, err := ids.ParseJobID(id)
		if err != nil || file != recordName {
			continue
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// PutJob stores what was submitted. It is written before the job's record and
// never changes: the same content counts as written, other content is
// objectstore.ErrPrecondition.
func (c *ClusterStore) PutJob(ctx context.Context, job ids.JobID, content []byte) error {
	if len(content) > jobSizeMax {
		return fmt.Errorf("put job %s: has %d bytes, at most %d are allowed", job, len(content), jobSizeMax)
	}
	if err := createIdentical(ctx, c.store, jobObject(job, jobName), content); err != nil {
		return fmt.Errorf("put job %s: %w", job, err)
	}
	return nil
}

// ReadJob reads what PutJob stored. objectstore.ErrNotExist if there is none.
func (c *ClusterStore) ReadJob(ctx context.Context, job ids.JobID) ([]byte, error) {
	content, _, err := c.store.Read(ctx, jobObject(job, jobName), jobSizeMax)
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", job, err)
	}
	return content, nil
}

// DeleteJob forgets a job and its history: its record first, so that what an
// interruption leaves is no job.
func (c *ClusterStore) DeleteJob(ctx context.Context, job ids.JobID) error {
	for _, file := range []string{recordName, jobName} {
		if err := c.store.Delete(ctx, jobObject(job, file)); err != nil {
			return fmt.Errorf("delete job %s: %w", job, err)
		}
	}
	if err := c.deleteHistory(ctx, job); err != nil {
		return fmt.Errorf("delete job %s: %w", job, err)
	}
	return nil
}

// Sweep deletes what no job needs: artifacts that are not in keep, jobs that
// were put but never got a record, and what interrupted writes left. A
// JobManager calls it once, after it has read its jobs and before it accepts
// new ones: whatever has no record then was never accepted. It returns how
// many objects it deleted.
func (c *ClusterStore) Sweep(ctx context.Context, keep []string) (int, error) {
	deleted := 0
	jobs, err := c.Jobs(ctx)
	if err != nil {
		return 0, err
	}
	keptNames := make(map[string]bool, len(keep)+len(jobs))
	for _, sum := range keep {
		keptNames[artifactsDir+sum] = true
	}
	hasRecord := make(map[ids.JobID]bool, len(jobs))
	for _, job := range jobs {
		keptNames[jobObject(job, jobName)] = true
		hasRecord[job] = true
	}
	// The history of a job that runs is being written.
	isDead := func(name string) bool {
		if job, _, ok := parseHistoryObject(name); ok {
			return !hasRecord[job]
		}
		return isClusterObject(name)
	}
	for _, dir := range []string{artifactsDir, jobsDir} {
		for object, err := range c.store.List(ctx, dir) {
			if err != nil {
				return deleted, fmt.Errorf("sweep jobs and artifacts: %w", err)
			}
			if keptNames[object.Name] || !isDead(object.Name) {
				continue
			}
			if err := c.store.Delete(ctx, object.Name); err != nil {
				return deleted, fmt.Errorf("sweep jobs and artifacts: %w", err)
			}
			deleted++
		}
		staged, err := c.store.DiscardStaged(ctx, dir, isDead)
		deleted += staged
		if err != nil {
			return deleted, fmt.Errorf("sweep jobs and artifacts: %w", err)
		}
	}
	return deleted, nil
}

// isClusterObject reports whether a name is that of an artifact or job.
// Records are left out: nothing but DeleteJob deletes one.
func isClusterObject(name string) bool {
	if sum, ok := strings.CutPrefix(name, artifactsDir); ok {
		_, err := artifactName(sum)
		return err == nil
	}
	id, file, ok := strings.Cut(strings.TrimPrefix(name, jobsDir), "/")
	_, err := ids.ParseJobID(id)
	return ok && err == nil && file == jobName
}

func jobObject(job ids.JobID, file string) string { return jobsDir + string(job) + "/" + file }
