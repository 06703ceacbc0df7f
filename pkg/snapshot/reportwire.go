package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// reportSubtasksMax bounds the subtasks of a report that is read: more than a
// job can have are a mistake, and would be allocated.
const reportSubtasksMax = 1 << 18

// column is one number of every subtask. A report is stored by columns,
// because most are short numbers, or 0 in all subtasks.
type column struct {
	of  func(*pb.CheckpointReport) *[]int64
	get func(SubtaskReport) int64
	set func(*SubtaskReport, int64)
}

func micros(d time.Duration) int64 { return d.Microseconds() }

func ofMicros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

var columns = []column{
	{func(p *pb.CheckpointReport) *[]int64 { return &p.EndUs },
		func(r SubtaskReport) int64 {
			if !r.Acked {
				return 0
			}
			return micros(r.End) + 1
		},
		func(r *SubtaskReport, n int64) {
			if r.Acked = n > 0; r.Acked {
				r.End = ofMicros(n - 1)
			}
		}},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.AlignmentUs },
		func(r SubtaskReport) int64 { return micros(r.Stats.Alignment) },
		func(r *SubtaskReport, n int64) { r.Stats.Alignment = ofMicros(n) }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.SyncUs },
		func(r SubtaskReport) int64 { return micros(r.Stats.Sync) },
		func(r *SubtaskReport, n int64) { r.Stats.Sync = ofMicros(n) }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.AsyncUs },
		func(r SubtaskReport) int64 { return micros(r.Stats.Async) },
		func(r *SubtaskReport, n int64) { r.Stats.Async = ofMicros(n) }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.ProcessedBytes },
		func(r SubtaskReport) int64 { return r.Stats.ProcessedBytes },
		func(r *SubtaskReport, n int64) { r.Stats.ProcessedBytes = n }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.PersistedBytes },
		func(r SubtaskReport) int64 { return r.Stats.PersistedBytes },
		func(r *SubtaskReport, n int64) { r.Stats.PersistedBytes = n }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.StateBytes },
		func(r SubtaskReport) int64 { return r.StateBytes },
		func(r *SubtaskReport, n int64) { r.StateBytes = n }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.UploadedBytes },
		func(r SubtaskReport) int64 { return r.UploadedBytes },
		func(r *SubtaskReport, n int64) { r.UploadedBytes = n }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.ChannelBytes },
		func(r SubtaskReport) int64 { return r.ChannelBytes },
		func(r *SubtaskReport, n int64) { r.ChannelBytes = n }},
	{func(p *pb.CheckpointReport) *[]int64 { return &p.Unaligned },
		func(r SubtaskReport) int64 {
			if r.Stats.Unaligned {
				return 1
			}
			return 0
		},
		func(r *SubtaskReport, n int64) { r.Stats.Unaligned = n != 0 }},
}

// ToProto converts the report. Times are cut to microseconds, the time of the
// trigger to milliseconds.
func (r *CheckpointReport) ToProto() *pb.CheckpointReport {
	p := &pb.CheckpointReport{
		Id: uint64(r.ID), Kind: r.Kind.toProto(), Completed: r.Completed, Failure: r.Failure, Detail: r.Detail,
		TriggeredUnixMs: TimeToProto(r.TriggeredAt), DurationUs: micros(r.Duration), Path: r.Path, Parallelism: r.Parallelism,
	}
	if r.Culprit != nil {
		p.Culprit = SubtaskToProto(*r.Culprit)
	}
	for _, c := range columns {
		values, all := make([]int64, len(r.Subtasks)), int64(0)
		for i := range r.Subtasks {
			values[i] = max(0, c.get(r.Subtasks[i]))
			all |= values[i]
		}
		if all != 0 {
			*c.of(p) = values
		}
	}
	return p
}

// CheckpointReportFromProto converts and checks a report.
func CheckpointReportFromProto(p *pb.CheckpointReport) (*CheckpointReport, error) {
	if p.GetId() == 0 {
		return nil, errors.New("report of checkpoint 0")
	}
	r := &CheckpointReport{
		ID: ids.CheckpointID(p.GetId()), Completed: p.GetCompleted(), Failure: p.GetFailure(), Detail: p.GetDetail(),
		TriggeredAt: TimeFromProto(p.GetTriggeredUnixMs()), Duration: ofMicros(p.GetDurationUs()), Path: p.GetPath(), Parallelism: p.GetParallelism(),
	}
	var err error
	if r.Kind, err = kindFromProto(p.GetKind()); err != nil {
		return nil, fmt.Errorf("report of checkpoint %d: %w", r.ID, err)
	}
	if p.GetCulprit() != nil {
		culprit, err := SubtaskFromProto(p.GetCulprit())
		if err != nil {
			return nil, fmt.Errorf("report of checkpoint %d: %w", r.ID, err)
		}
		r.Culprit = &culprit
	}
	total := int64(0)
	for _, n := range r.Parallelism {
		if total += int64(n); n <= 0 || total > reportSubtasksMax {
			return nil, fmt.Errorf("report of checkpoint %d: vertices of %v subtasks", r.ID, r.Parallelism)
		}
	}
	r.Subtasks = make([]SubtaskReport, total)
	for _, c := range columns {
		values := *c.of(p)
		if len(values) != 0 && int64(len(values)) != total {
			return nil, fmt.Errorf("report of checkpoint %d: %d values for %d subtasks", r.ID, len(values), total)
		}
		for i, n := range values {
			if n < 0 {
				return nil, fmt.Errorf("report of checkpoint %d: a subtask has the value %d", r.ID, n)
			}
			c.set(&r.Subtasks[i], n)
		}
	}
	return r, nil
}
