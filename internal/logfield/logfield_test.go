package logfield

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weirstream/weir/pkg/ids"
)

// TestIdentitiesReadAsTheyArePrinted keeps log search and the output of
// flinkctl on one spelling of each identity.
func TestIdentitiesReadAsTheyArePrinted(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	executor := ids.ExecutorID{Job: "j", Attempt: ids.AttemptID{Token: 3, Number: 1}, TaskManager: "tm-1"}
	zap.New(core).Info("deployed", Job("j"), Attempt(executor.Attempt), Executor(executor),
		Subtask(ids.SubtaskID{Vertex: 2, Index: 4}), Checkpoint(7), FencingToken(3), Operator("count"), TaskManager("tm-1"))
	have := logs.All()[0].ContextMap()
	for key, want := range map[string]any{
		"job": "j", "attempt": "3.1", "executor": "j/3.1@tm-1", "subtask": "2/4", "checkpoint": uint64(7),
		"fencing_token": uint64(3), "operator": "count", "taskmanager": "tm-1",
	} {
		if have[key] != want {
			t.Errorf("%s is logged as %v, want %v", key, have[key], want)
		}
	}
}
