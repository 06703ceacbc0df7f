package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status JOB",
		Short: "Show a job: status, checkpoints, records, cause of its last failure",
		Long: "Show a job: its status, checkpoints, the records in and out of each vertex, where\n" +
			"its subtasks run, and the cause of its last failure with its stack. JOB is a job ID\n" +
			"or its first digits.\n\n" +
			"A vertex is a chain of operators that run together. Its records in are those that its\n" +
			"subtasks took from other vertices or, in a vertex that starts with a source, read there;\n" +
			"its records out are those that went to other vertices, however many operators are in\n" +
			"the chain. What a sink writes is not counted as out: a last vertex has 0, and so has a\n" +
			"job that is one vertex as a whole. Counters are of the current attempt: a restart sets\n" +
			"them to 0, and records since the restored checkpoint count again. A job that FINISHED\n" +
			"keeps those of its last attempt.",
		Example: "  flinkctl status 4f2a\n  flinkctl status 4f2a -o json",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				job, err := resolveJob(ctx, jobManager, args[0])
				if err != nil {
					return err
				}
				response, err := read(ctx, &pb.JobStatusRequest{JobId: job}, jobManager.JobStatus)
				if err != nil {
					return err
				}
				status := statusOf(response)
				return c.result(status, func() error { return c.printStatus(status) })
			})
		},
	}
}

// statusOf makes the output of status.
func statusOf(r *pb.JobStatusResponse) *cliresult.JobStatus {
	status := &cliresult.JobStatus{
		ID: r.GetId(), Name: r.GetName(), Status: r.GetStatus(), Detail: r.GetDetail(),
		Restarts: r.GetRestarts(), Attempt: r.GetAttempt(),
		RestoredCheckpoint: r.GetRestoredCheckpoint(), LastCheckpoint: r.GetLastCheckpoint(), LastCheckpointPath: r.GetLastCheckpointPath(),
		Cause:     causeOf(r.GetCause()),
		Submitted: timeOf(r.GetSubmittedUnixMs()), Started: timeOf(r.GetStartedUnixMs()), Ended: timeOf(r.GetEndedUnixMs()),
		Vertices: []cliresult.Vertex{}, Executors: []cliresult.Executor{}, Events: []cliresult.Event{},
	}
	for _, v := range r.GetVertices() {
		status.Vertices = append(status.Vertices, vertexOf(v))
	}
	for _, taskManager := range r.GetExecutors() {
		status.Executors = append(status.Executors, executorsOf(taskManager)...)
	}
	for _, event := range r.GetEvents() {
		status.Events = append(status.Events, cliresult.Event{Time: time.UnixMilli(event.GetUnixMs()).UTC(), Text: event.GetText()})
	}
	return status
}

// causeOf is one text: the operator and what happened, then the stack.
func causeOf(failure *pb.Failure) string {
	message := failureMessage(failure)
	if stack := strings.TrimSpace(failure.GetStack()); stack != "" {
		message += "\n" + stack
	}
	return message
}

func failureMessage(failure *pb.Failure) string {
	message := failure.GetMessage()
	if operator := failure.GetOperator(); operator != "" && !strings.Contains(message, operator) {
		message = operator + ": " + message
	}
	return message
}

func vertexOf(v *pb.VertexStatus) cliresult.Vertex {
	vertex := cliresult.Vertex{
		ID: v.GetId(), Name: v.GetName(), Parallelism: v.GetParallelism(),
		RecordsIn: v.GetRecordsIn(), RecordsOut: v.GetRecordsOut(),
		RecordsInRate: v.GetRecordsInRate(), RecordsOutRate: v.GetRecordsOutRate(), SpilledBytes: v.GetSpilledBytes(),
		Tasks: maps.Clone(v.GetTasks()), Subtasks: []cliresult.Subtask{},
	}
	if vertex.Tasks == nil {
		vertex.Tasks = map[string]int32{}
	}
	for _, s := range v.GetSubtasks() {
		vertex.Subtasks = append(vertex.Subtasks, cliresult.Subtask{
			Index: s.GetIndex(), Status: s.GetStatus(), TaskManagerID: s.GetTaskManagerId(), Host: s.GetHost(),
			RecordsIn: s.GetRecordsIn(), RecordsOut: s.GetRecordsOut(),
		})
	}
	slices.SortFunc(vertex.Subtasks, func(a, b cliresult.Subtask) int { return cmp.Compare(a.Index, b.Index) })
	return vertex
}

func executorsOf(taskManager *pb.TaskManagerStatus) []cliresult.Executor {
	executors := []cliresult.Executor{}
	for _, e := range taskManager.GetExecutors() {
		executors = append(executors, cliresult.Executor{
			TaskManagerID: taskManager.GetId(), JobID: e.GetJobId(), Attempt: e.GetAttempt(), PID: e.GetPid(), DataAddress: e.GetDataAddress(),
		})
	}
	return executors
}

// eventsShown is how many of the last events status prints as text.
const eventsShown = 10

func (c *cli) printStatus(s *cliresult.JobStatus) error {
	state := s.Status
	if s.Detail != "" {
		state += " (" + s.Detail + ")"
	}
	lines := [][2]string{
		{"job-id", s.ID}, {"name", s.Name}, {"status", state}, {"restarts", fmt.Sprint(s.Restarts)},
		{"restored checkpoint", showNumber(s.RestoredCheckpoint)}, {"last checkpoint", showNumber(s.LastCheckpoint)},
		{"submitted", showTime(s.Submitted)}, {"ended", showTime(s.Ended)},
	}
	for _, line := range lines {
		if err := c.say("%-20s %s\n", line[0]+":", line[1]); err != nil {
			return err
		}
	}
	if s.Cause != "" {
		if err := c.say("\ncause: %s\n", s.Cause); err != nil {
			return err
		}
	}
	if len(s.Vertices) > 0 {
		rows := make([][]string, len(s.Vertices))
		for i, v := range s.Vertices {
			rows[i] = []string{v.Name, fmt.Sprint(v.Parallelism), tasksText(v.Tasks), fmt.Sprint(v.RecordsIn), fmt.Sprint(v.RecordsOut),
				fmt.Sprintf("%.0f/s", v.RecordsInRate), fmt.Sprintf("%.0f/s", v.RecordsOutRate)}
		}
		if err := c.say("\n"); err != nil {
			return err
		}
		if err := c.table([]string{"VERTEX", "PARALLELISM", "SUBTASKS", "RECORDS IN", "RECORDS OUT", "IN", "OUT"}, rows); err != nil {
			return err
		}
		for _, v := range s.Vertices {
			if v.SpilledBytes > 0 {
				if err := c.say("%s: %s came round the loop faster than it could pass them on, and went to disk\n", v.Name, showBytes(v.SpilledBytes)); err != nil {
					return err
				}
			}
		}
	}
	if len(s.Events) == 0 {
		return nil
	}
	if err := c.say("\n"); err != nil {
		return err
	}
	for _, event := range s.Events[max(0, len(s.Events)-eventsShown):] {
		if err := c.say("%s  %s\n", event.Time.Local().Format(time.TimeOnly), event.Text); err != nil {
			return err
		}
	}
	return nil
}

// tasksText prints "2 RUNNING, 1 INITIALIZING".
func tasksText(tasks map[string]int32) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(tasks)) {
		if tasks[status] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", tasks[status], status))
		}
	}
	return showText(strings.Join(parts, ", "))
}
