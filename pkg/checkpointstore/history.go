package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

// The history of a job is for people. Nothing is decided by it, and nothing
// waits for it: an object of it that is missing or broken is one less.

const historyMagic = "WEIRHIST"

// reportSizeMax bounds a report. One of 100,000 subtasks has some megabytes.
const reportSizeMax = 16 << 20

// reportFeatures are the features of reports that this program knows.
var reportFeatures []string

const historyDir = "history/"

// EncodeReport makes the stored form of a report.
func EncodeReport(report *snapshot.CheckpointReport) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(report.ToProto())
	if err != nil {
		return nil, fmt.Errorf("encode report of checkpoint %d: %w", report.ID, err)
	}
	content := sealEnvelope(historyMagic, nil, body)
	if len(content) > reportSizeMax {
		return nil, fmt.Errorf("encode report of checkpoint %d: has %d bytes, at most %d are allowed", report.ID, len(content), reportSizeMax)
	}
	return content, nil
}

// DecodeReport reads what EncodeReport made. Its errors are ErrCorrupt or
// ErrUnsupported.
func DecodeReport(content []byte) (*snapshot.CheckpointReport, error) {
	body, err := openEnvelope(historyMagic, reportFeatures, content)
	if err != nil {
		return nil, err
	}
	var message pb.CheckpointReport
	if err := proto.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	report, err := snapshot.CheckpointReportFromProto(&message)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return report, nil
}

// PutReport stores a report that EncodeReport made. One that is there already
// stays: checkpoints have their IDs for themselves.
func (c *ClusterStore) PutReport(ctx context.Context, job ids.JobID, id ids.CheckpointID, content []byte) error {
	_, err := c.store.PutIf(ctx, historyObject(job, id), content, objectstore.IfAbsent())
	if err != nil && !errors.Is(err, objectstore.ErrPrecondition) {
		return fmt.Errorf("put report of checkpoint %d: %w", id, err)
	}
	return nil
}

// ReadReport reads what PutReport stored. objectstore.ErrNotExist if there is
// none; ErrCorrupt or ErrUnsupported if it cannot be understood.
func (c *ClusterStore) ReadReport(ctx context.Context, job ids.JobID, id ids.CheckpointID) (*snapshot.CheckpointReport, error) {
	name := historyObject(job, id)
	content, _, err := c.store.Read(ctx, name, reportSizeMax)
	if err != nil {
		return nil, fmt.Errorf("read report of checkpoint %d: %w", id, err)
	}
	report, err := DecodeReport(content)
	if err == nil && report.ID != id {
		err = fmt.Errorf("is of checkpoint %d: %w", report.ID, ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("read report of checkpoint %d: %s: %w", id, c.store.URI(name), err)
	}
	return report, nil
}

// Reports lists the checkpoints of which reports are stored, ascending.
func (c *ClusterStore) Reports(ctx context.Context, job ids.JobID) ([]ids.CheckpointID, error) {
	var found []ids.CheckpointID
	for object, err := range c.store.List(ctx, jobObject(job, historyDir)) {
		if err != nil {
			return nil, fmt.Errorf("list the history of job %s: %w", job, err)
		}
		if _, id, ok := parseHistoryObject(object.Name); ok {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return found, nil
}

// DeleteReport deletes a report. One that is not there counts as deleted.
func (c *ClusterStore) DeleteReport(ctx context.Context, job ids.JobID, id ids.CheckpointID) error {
	if err := c.store.Delete(ctx, historyObject(job, id)); err != nil {
		return fmt.Errorf("delete report of checkpoint %d: %w", id, err)
	}
	return nil
}

// deleteHistory deletes all reports of a job.
func (c *ClusterStore) deleteHistory(ctx context.Context, job ids.JobID) error {
	reports, err := c.Reports(ctx, job)
	for _, id := range reports {
		err = errors.Join(err, c.DeleteReport(ctx, job, id))
	}
	return err
}

func historyObject(job ids.JobID, id ids.CheckpointID) string {
	return jobObject(job, historyDir+strconv.FormatUint(uint64(id), 10))
}

func parseHistoryObject(name string) (ids.JobID, ids.CheckpointID, bool) {
	text, inJobs := strings.CutPrefix(name, jobsDir)
	text, file, inJob := strings.Cut(text, "/")
	job, err := ids.ParseJobID(text)
	number, inHistory := strings.CutPrefix(file, historyDir)
	id, numberErr := strconv.ParseUint(number, 10, 64)
	ok := inJobs && inJob && inHistory && err == nil && numberErr == nil && historyObject(job, ids.CheckpointID(id)) == name
	return job, ids.CheckpointID(id), ok
}
