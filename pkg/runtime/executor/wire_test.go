package executor

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
)

func TestReportsThatDoNotFitSaySo(t *testing.T) {
	id := ids.SubtaskID{Vertex: 1, Index: 2}
	const bytesMax = 1 << 20
	large := make([]byte, bytesMax)
	ack := fitting(id, subtask.AckReport{Checkpoint: 7, State: snapshot.SubtaskState{Subtask: id, Operators: []snapshot.OperatorSubtaskState{{
		UID: "counts", Lists: []snapshot.OperatorStateHandle{{Name: "list", Redistribution: snapshot.SplitEvenly, Handle: snapshot.StateHandle{Inline: large}}},
	}}}}, bytesMax)
	declined := ack.GetDeclined()
	if declined.GetCheckpoint() != 7 || declined.GetSubtask().GetIndex() != 2 || !strings.Contains(declined.GetReason(), "data-inline-threshold") {
		t.Errorf("an acknowledgement that is too large became %.300v", ack)
	}
	splits := fitting(id, subtask.SplitsReport{Operator: "in", Splits: []snapshot.Split{{Data: large}}}, bytesMax)
	if f := splits.GetFailure(); f.GetKind() != pb.FailureKind_FAILURE_KIND_PERMANENT || !strings.Contains(f.GetMessage(), "fewer splits") {
		t.Errorf("splits that are too many became %.300v", splits)
	}
}

func TestFailuresFitIntoAMessage(t *testing.T) {
	m := fitting(ids.SubtaskID{}, subtask.StatusReport{Status: coordinator.Failed, Failure: coordinator.Failure{
		Kind: coordinator.UserFailure, Message: strings.Repeat("x", 1<<20) + "\xff", Stack: "\xfe",
	}}, 1<<20)
	f := m.GetTaskStatus().GetFailure()
	if len(f.GetMessage()) > messageBytesMax+3 || f.GetStack() != "\uFFFD" {
		t.Errorf("message of %d bytes, stack %q", len(f.GetMessage()), f.GetStack())
	}
}
