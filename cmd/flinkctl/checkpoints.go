package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) checkpointsCommand() *cobra.Command {
	var id uint64
	cmd := &cobra.Command{
		Use:   "checkpoints JOB",
		Short: "List the latest checkpoints and savepoints of a job, or show one",
		Long: "List the latest checkpoints and savepoints of a job, newest first, as many as\n" +
			"web.checkpoints.history says. FULL is the size of all state that one refers to,\n" +
			"INCREMENTAL what was uploaded for it, CHANNELS the records in flight in it, and\n" +
			"ALIGNMENT the longest time that a subtask waited for barriers.\n\n" +
			"With --id, show one: for each vertex the least, average and most, and for each\n" +
			"subtask, the time until the barrier came (START DELAY), the alignment, the time in which\n" +
			"no record was processed (SYNC), the time of the upload (ASYNC), the bytes processed\n" +
			"and stored while barriers were waited for, and the sizes.",
		Example: "  flinkctl checkpoints 4f2a\n  flinkctl checkpoints 4f2a --id 17",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				job, err := resolveJob(ctx, jobManager, args[0])
				if err != nil {
					return err
				}
				if cmd.Flags().Changed("id") {
					return c.showCheckpoint(ctx, jobManager, job, id)
				}
				return c.checkpoints(ctx, jobManager, job)
			})
		},
	}
	cmd.Flags().Uint64Var(&id, "id", 0, "show the checkpoint or savepoint `N`")
	return cmd
}

func (c *cli) checkpoints(ctx context.Context, jobManager *transport.JobManager, job string) error {
	response, err := read(ctx, &pb.ListCheckpointsRequest{JobId: job}, jobManager.ListCheckpoints)
	if err != nil {
		return err
	}
	listed := cliresult.Checkpoints{Completed: response.GetCompleted(), Failed: response.GetFailed(), Checkpoints: []cliresult.Checkpoint{}}
	for _, info := range response.GetCheckpoints() {
		listed.Checkpoints = append(listed.Checkpoints, checkpointOf(info))
	}
	return c.result(listed, func() error {
		rows := make([][]string, len(listed.Checkpoints))
		for i, one := range listed.Checkpoints {
			rows[i] = []string{fmt.Sprint(one.ID), kindOf(one), one.Status, showTime(one.Triggered), showMillis(float64(one.DurationMS)), showMillis(one.AlignmentMS),
				showBytes(one.Size), showBytes(one.Uploaded), showBytes(one.ChannelBytes), fmt.Sprintf("%d/%d", one.Acked, one.Subtasks), showText(one.Path), one.Reason}
		}
		if err := c.say("completed: %d, failed: %d under this JobManager\n", listed.Completed, listed.Failed); err != nil || len(rows) == 0 {
			return err
		}
		return c.table([]string{"ID", "KIND", "STATUS", "TRIGGERED", "DURATION", "ALIGNMENT", "FULL", "INCREMENTAL", "CHANNELS", "ACKED", "PATH", "REASON"}, rows)
	})
}

func checkpointOf(info *pb.CheckpointInfo) cliresult.Checkpoint {
	return cliresult.Checkpoint{
		ID: info.GetId(), Kind: info.GetKind(), Status: info.GetStatus(), Reason: info.GetReason(),
		Triggered: timeOf(info.GetTriggeredUnixMs()), DurationMS: info.GetDurationMs(), Size: info.GetSize(), Uploaded: info.GetUploaded(),
		Acked: info.GetAcked(), Subtasks: info.GetSubtasks(), Path: info.GetPath(),
		AlignmentMS: float64(info.GetAlignmentUs()) / 1000, ChannelBytes: info.GetChannelBytes(), Unaligned: info.GetUnaligned(),
	}
}

func kindOf(one cliresult.Checkpoint) string {
	if one.Unaligned {
		return one.Kind + " (unaligned)"
	}
	return one.Kind
}

// showMillis prints a duration with what matters of it.
func showMillis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// showCheckpoint shows what is remembered of one checkpoint.
func (c *cli) showCheckpoint(ctx context.Context, jobManager *transport.JobManager, job string, id uint64) error {
	response, err := read(ctx, &pb.ShowCheckpointRequest{JobId: job, Id: id}, jobManager.ShowCheckpoint)
	if errors.Is(err, transport.ErrNotFound) && strings.Contains(err.Error(), "has no checkpoint") {
		return &failure{code: codeNotFound, message: err.Error(), hint: "flinkctl checkpoints " + job + " lists them", err: err}
	}
	if err != nil {
		return err
	}
	shown := cliresult.CheckpointDetails{Checkpoint: checkpointOf(response.GetInfo()), Vertices: []cliresult.CheckpointVertex{}}
	if response.GetReport() != nil {
		report, err := snapshot.CheckpointReportFromProto(response.GetReport())
		if err != nil {
			return fmt.Errorf("what the JobManager tells of checkpoint %d cannot be read: %w", id, err)
		}
		shown.Failure = report.Failure
		if report.Culprit != nil {
			shown.DeclinedBy = &cliresult.SubtaskRef{Vertex: int32(report.Culprit.Vertex), Index: report.Culprit.Index}
		}
		for v := range report.Parallelism {
			vertex := cliresult.CheckpointVertex{ID: int32(v), Name: fmt.Sprint("vertex ", v)}
			if len(response.GetVertices()) == len(report.Parallelism) {
				vertex.Name = response.GetVertices()[v]
			}
			for i, s := range report.Vertex(v) {
				vertex.Subtasks = append(vertex.Subtasks, checkpointSubtask(int32(i), s))
			}
			shown.Vertices = append(shown.Vertices, vertex)
		}
	}
	return c.result(shown, func() error { return c.sayCheckpoint(shown) })
}

func checkpointSubtask(index int32, s snapshot.SubtaskReport) cliresult.CheckpointSubtask {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return cliresult.CheckpointSubtask{
		Index: index, Acked: s.Acked, EndMS: ms(s.End), StartDelayMS: ms(s.StartDelay()), AlignmentMS: ms(s.Stats.Alignment), SyncMS: ms(s.Stats.Sync), AsyncMS: ms(s.Stats.Async),
		ProcessedBytes: s.Stats.ProcessedBytes, PersistedBytes: s.Stats.PersistedBytes, Size: s.StateBytes, Uploaded: s.UploadedBytes, ChannelBytes: s.ChannelBytes,
		Unaligned: s.Stats.Unaligned,
	}
}

// measure is one column of the tables of a checkpoint.
type measure struct {
	heading string
	of      func(cliresult.CheckpointSubtask) float64
	show    func(float64) string
}

func bytesMeasure(heading string, of func(cliresult.CheckpointSubtask) int64) measure {
	return measure{heading, func(s cliresult.CheckpointSubtask) float64 { return float64(of(s)) }, func(n float64) string { return showBytes(int64(n)) }}
}

var measures = []measure{
	{"END", func(s cliresult.CheckpointSubtask) float64 { return s.EndMS }, showMillis},
	{"START DELAY", func(s cliresult.CheckpointSubtask) float64 { return s.StartDelayMS }, showMillis},
	{"ALIGNMENT", func(s cliresult.CheckpointSubtask) float64 { return s.AlignmentMS }, showMillis},
	{"SYNC", func(s cliresult.CheckpointSubtask) float64 { return s.SyncMS }, showMillis},
	{"ASYNC", func(s cliresult.CheckpointSubtask) float64 { return s.AsyncMS }, showMillis},
	bytesMeasure("PROCESSED", func(s cliresult.CheckpointSubtask) int64 { return s.ProcessedBytes }),
	bytesMeasure("PERSISTED", func(s cliresult.CheckpointSubtask) int64 { return s.PersistedBytes }),
	bytesMeasure("FULL", func(s cliresult.CheckpointSubtask) int64 { return s.Size }),
	bytesMeasure("INCREMENTAL", func(s cliresult.CheckpointSubtask) int64 { return s.Uploaded }),
	bytesMeasure("CHANNELS", func(s cliresult.CheckpointSubtask) int64 { return s.ChannelBytes }),
}

func (c *cli) sayCheckpoint(shown cliresult.CheckpointDetails) error {
	one := shown.Checkpoint
	lines := [][2]string{
		{"id", fmt.Sprint(one.ID)}, {"kind", kindOf(one)}, {"status", one.Status}, {"reason", one.Reason}, {"path", one.Path}, {"triggered", showTime(one.Triggered)},
		{"duration", showMillis(float64(one.DurationMS))}, {"acknowledged", fmt.Sprintf("%d of %d subtasks", one.Acked, one.Subtasks)},
		{"longest alignment", showMillis(one.AlignmentMS)}, {"full size", showBytes(one.Size)}, {"incremental size", showBytes(one.Uploaded)}, {"records in flight", showBytes(one.ChannelBytes)},
	}
	for _, line := range lines {
		if line[1] == "" {
			continue
		}
		if err := c.say("%-18s %s\n", line[0]+":", line[1]); err != nil {
			return err
		}
	}
	for _, vertex := range shown.Vertices {
		if err := c.sayCheckpointVertex(shown, vertex); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) sayCheckpointVertex(shown cliresult.CheckpointDetails, vertex cliresult.CheckpointVertex) error {
	headings := []string{"SUBTASK"}
	for _, m := range measures {
		headings = append(headings, m.heading)
	}
	var acked []cliresult.CheckpointSubtask
	for _, s := range vertex.Subtasks {
		if s.Acked {
			acked = append(acked, s)
		}
	}
	if err := c.say("\n%s: %d of %d subtasks acknowledged\n", vertex.Name, len(acked), len(vertex.Subtasks)); err != nil {
		return err
	}
	rows := [][]string{{"least"}, {"average"}, {"most"}}
	if len(acked) == 0 {
		rows = nil
	}
	for _, m := range measures {
		if len(acked) == 0 {
			break
		}
		least, sum, most := m.of(acked[0]), 0.0, m.of(acked[0])
		for _, s := range acked {
			least, sum, most = min(least, m.of(s)), sum+m.of(s), max(most, m.of(s))
		}
		for i, n := range []float64{least, sum / float64(len(acked)), most} {
			rows[i] = append(rows[i], m.show(n))
		}
	}
	for _, s := range vertex.Subtasks {
		row := []string{fmt.Sprint(s.Index + 1)}
		for _, m := range measures {
			switch {
			case s.Acked:
				row = append(row, m.show(m.of(s)))
			default:
				row = append(row, "-")
			}
		}
		switch by := shown.DeclinedBy; {
		case by != nil && by.Vertex == vertex.ID && by.Index == s.Index:
			row = append(row, "declined")
		case s.Unaligned:
			row = append(row, "unaligned")
		}
		rows = append(rows, row)
	}
	return c.table(headings, rows)
}
