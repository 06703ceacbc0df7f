package driver

import (
	"testing"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

func TestNoTaskOfAnEndedJobIsShownAsRunning(t *testing.T) {
	for _, test := range []struct {
		job  coordinator.JobStatus
		task coordinator.TaskStatus
		want string
	}{
		{coordinator.RunningStatus, 0, "CREATED"},
		{coordinator.RunningStatus, coordinator.Running, "RUNNING"},
		{coordinator.FailedStatus, coordinator.Running, "CANCELED"},
		{coordinator.FailedStatus, 0, "CANCELED"},
		{coordinator.FailedStatus, coordinator.Failed, "FAILED"},
		{coordinator.FinishedStatus, coordinator.Finished, "FINISHED"},
	} {
		g := &graph.ExecutionGraph{Vertices: []graph.Vertex{{Parallelism: 1}}}
		status := &coordinator.Status{Status: test.job, Subtasks: []coordinator.SubtaskView{{Status: test.task}}}
		views := verticesView(g, status, make([]vertexMetrics, 1), func(ids.TaskManagerID) string { return "" })
		if got := views[0].Subtasks[0].Status; got != test.want || views[0].Tasks[test.want] != 1 {
			t.Errorf("task %v of a job that is %v is shown as %s, want %s", test.task, test.job, got, test.want)
		}
	}
}
