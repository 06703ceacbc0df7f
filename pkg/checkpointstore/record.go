package checkpointstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

const recordMagic = "WEIRJOBR"

const (
	// recordSizeMax bounds a record. It holds only what the coordinator bounds
	// itself (retained checkpoints, savepoints), so reaching it is a mistake.
	recordSizeMax = 4 << 20
	// causeTextMax cuts the texts of a failure's cause: a stack of this size
	// is read by nobody, and the record is rewritten with every checkpoint.
	causeTextMax = 32 << 10
)

// recordFeatures are the features of records that this program knows.
var recordFeatures []string

// JobRecord is the only truth about what a job restores from. It changes by
// compare-and-swap alone (see ClusterStore.SwapRecord).
type JobRecord struct {
	Job ids.JobID
	// Token of the JobManager leadership that wrote this content.
	Token ids.FencingToken
	// Nonce is unique to the write that made this content: it makes contents
	// differ and lets a writer recognise its own.
	Nonce  string
	Status string
	// Latest is what a failure restores from; the zero value for none.
	Latest CheckpointRef
	// Retained are the published checkpoints that still exist, oldest first.
	Retained []CheckpointRef
	// NextCheckpointBlock: all checkpoint IDs below it may have been used (I6).
	NextCheckpointBlock ids.CheckpointID
	// Savepoints completed by this job.
	Savepoints []ids.CheckpointID
	// StopSavepoint is set once stop-with-savepoint has published: Latest is
	// the savepoint, and the job only has to commit and end.
	StopSavepoint bool
	Restarts      int64
	Cause         *FailureCause
	// StartedAt and EndedAt are for display, in milliseconds.
	StartedAt, EndedAt time.Time
}

// CheckpointRef names a stored checkpoint.
type CheckpointRef struct {
	ID  ids.CheckpointID
	URI string
}

// IsZero reports whether the reference names nothing.
func (r CheckpointRef) IsZero() bool { return r == CheckpointRef{} }

// FailureCause is why a job failed, in words for users. Texts are cut to 32
// KiB when stored.
type FailureCause struct {
	Kind, Message, Stack string
	Operator             ids.OperatorUID
}

// VersionedRecord is a record as it was read or written, with what a swap
// compares.
type VersionedRecord struct {
	JobRecord
	ETag objectstore.ETag
}

// EncodeRecord makes the stored form of a record.
func EncodeRecord(record JobRecord) ([]byte, error) {
	if record.Nonce == "" {
		return nil, errors.New("encode record: has no nonce")
	}
	message := recordToProto(record)
	if _, err := recordFromProto(message); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode record of job %s: %w", record.Job, err)
	}
	content := sealEnvelope(recordMagic, nil, body)
	if len(content) > recordSizeMax {
		return nil, fmt.Errorf("encode record of job %s: has %d bytes, at most %d are allowed", record.Job, len(content), recordSizeMax)
	}
	return content, nil
}

// DecodeRecord reads what EncodeRecord made. Its errors are ErrCorrupt or
// ErrUnsupported.
func DecodeRecord(content []byte) (JobRecord, error) {
	body, err := openEnvelope(recordMagic, recordFeatures, content)
	if err != nil {
		return JobRecord{}, err
	}
	var message pb.JobRecord
	if err := proto.Unmarshal(body, &message); err != nil {
		return JobRecord{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	record, err := recordFromProto(&message)
	if err != nil {
		return JobRecord{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return record, nil
}

func recordToProto(r JobRecord) *pb.JobRecord {
	message := &pb.JobRecord{
		JobId:               string(r.Job),
		FencingToken:        uint64(r.Token),
		Nonce:               r.Nonce,
		Status:              r.Status,
		NextCheckpointBlock: uint64(r.NextCheckpointBlock),
		StopSavepoint:       r.StopSavepoint,
		Restarts:            r.Restarts,
		StartedUnixMs:       snapshot.TimeToProto(r.StartedAt),
		EndedUnixMs:         snapshot.TimeToProto(r.EndedAt),
	}
	if !r.Latest.IsZero() {
		message.Latest = refToProto(r.Latest)
	}
	for _, ref := range r.Retained {
		message.Retained = append(message.Retained, refToProto(ref))
	}
	for _, id := range r.Savepoints {
		message.Savepoints = append(message.Savepoints, uint64(id))
	}
	if c := r.Cause; c != nil {
		message.Cause = &pb.FailureCause{
			Kind: c.Kind, Message: cutText(c.Message), Stack: cutText(c.Stack), Operator: string(c.Operator),
		}
	}
	return message
}

func recordFromProto(message *pb.JobRecord) (JobRecord, error) {
	job, err := ids.ParseJobID(message.GetJobId())
	if err != nil {
		return JobRecord{}, err
	}
	record := JobRecord{
		Job:                 job,
		Token:               ids.FencingToken(message.GetFencingToken()),
		Nonce:               message.GetNonce(),
		Status:              message.GetStatus(),
		NextCheckpointBlock: ids.CheckpointID(message.GetNextCheckpointBlock()),
		StopSavepoint:       message.GetStopSavepoint(),
		Restarts:            message.GetRestarts(),
		StartedAt:           snapshot.TimeFromProto(message.GetStartedUnixMs()),
		EndedAt:             snapshot.TimeFromProto(message.GetEndedUnixMs()),
	}
	if message.GetLatest() != nil {
		if record.Latest, err = refFromProto(message.GetLatest()); err != nil {
			return JobRecord{}, fmt.Errorf("job %s: latest checkpoint: %w", job, err)
		}
	}
	for _, p := range message.GetRetained() {
		ref, err := refFromProto(p)
		if err != nil {
			return JobRecord{}, fmt.Errorf("job %s: retained checkpoint: %w", job, err)
		}
		record.Retained = append(record.Retained, ref)
	}
	for _, id := range message.GetSavepoints() {
		record.Savepoints = append(record.Savepoints, ids.CheckpointID(id))
	}
	if c := message.GetCause(); c != nil {
		record.Cause = &FailureCause{
			Kind: c.GetKind(), Message: c.GetMessage(), Stack: c.GetStack(), Operator: ids.OperatorUID(c.GetOperator()),
		}
	}
	return record, nil
}

func refToProto(r CheckpointRef) *pb.CheckpointRef {
	return &pb.CheckpointRef{Id: uint64(r.ID), Uri: r.URI}
}

func refFromProto(p *pb.CheckpointRef) (CheckpointRef, error) {
	if p.GetUri() == "" {
		return CheckpointRef{}, fmt.Errorf("checkpoint %d has no URI", p.GetId())
	}
	return CheckpointRef{ID: ids.CheckpointID(p.GetId()), URI: p.GetUri()}, nil
}

// cutText shortens a text to what a record may hold, and makes it valid
// UTF-8, which protobuf insists on and a user's panic need not be.
func cutText(text string) string {
	const mark = " … (cut)"
	if len(text) > causeTextMax {
		text = text[:causeTextMax-len(mark)] + mark
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
