package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/snapshot"
)

func (ClaimJob) isEffect()          {}
func (LoadCheckpoint) isEffect()    {}
func (UpdateRecord) isEffect()      {}
func (VerifyState) isEffect()       {}
func (RequestSlots) isEffect()      {}
func (ReleaseSlots) isEffect()      {}
func (LaunchExecutor) isEffect()    {}
func (StopExecutor) isEffect()      {}
func (DeployTasks) isEffect()       {}
func (AssignSplits) isEffect()      {}
func (TriggerCheckpoint) isEffect() {}
func (EndLoops) isEffect()          {}
func (PersistMetadata) isEffect()   {}
func (PublishCheckpoint) isEffect() {}
func (NotifyComplete) isEffect()    {}
func (NotifyAborted) isEffect()     {}
func (DiscardHandles) isEffect()    {}
func (DiscardCheckpoint) isEffect() {}
func (RecordHistory) isEffect()     {}
func (SweepAttempts) isEffect()     {}
func (FinishTasks) isEffect()       {}
func (CancelTasks) isEffect()       {}
func (Answer) isEffect()            {}
func (JobEnded) isEffect()          {}
func (StepDown) isEffect()          {}

// String prints id:uri.
func (r CheckpointRef) String() string {
	if r.ID == 0 && r.URI == "" {
		return "none"
	}
	return fmt.Sprintf("%d:%s", r.ID, r.URI)
}

// String prints the record on one line, leaving out what is empty.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{%s latest=%s retained=%v block=%d", r.Status, r.Latest, r.Retained, r.NextCheckpointBlock)
	if len(r.Savepoints) > 0 {
		fmt.Fprintf(&b, " savepoints=%v", r.Savepoints)
	}
	if r.StopSavepoint {
		b.WriteString(" stop-savepoint")
	}
	if r.Restarts > 0 {
		fmt.Fprintf(&b, " restarts=%d", r.Restarts)
	}
	if r.Cause != nil {
		fmt.Fprintf(&b, " cause=%q", r.Cause.Message)
	}
	b.WriteString("}")
	return b.String()
}

// String prints the effect for scripts and traces.
func (ClaimJob) String() string { return "ClaimJob" }

// String prints the effect for scripts and traces.
func (e LoadCheckpoint) String() string { return fmt.Sprintf("LoadCheckpoint %s", e.Ref) }

// String prints the effect for scripts and traces.
func (e UpdateRecord) String() string {
	return fmt.Sprintf("UpdateRecord revision=%d %s", e.Revision, e.Record)
}

// String prints the effect for scripts and traces.
func (e VerifyState) String() string {
	names := make([]string, len(e.Handles))
	for i, h := range e.Handles {
		names[i] = h.Name
	}
	return fmt.Sprintf("VerifyState %s base=%s files=%v", e.Ref, e.Base, names)
}

// String prints the effect for scripts and traces.
func (e RequestSlots) String() string {
	text := fmt.Sprintf("RequestSlots attempt=%s count=%d", e.Attempt, e.Count)
	if len(e.Avoid) > 0 {
		text += fmt.Sprintf(" avoid=%v", e.Avoid)
	}
	return text
}

// String prints the effect for scripts and traces.
func (e ReleaseSlots) String() string { return fmt.Sprintf("ReleaseSlots attempt=%s", e.Attempt) }

// String prints the effect for scripts and traces.
func (e LaunchExecutor) String() string {
	return fmt.Sprintf("LaunchExecutor %s@%s slots=%d", e.Executor.Attempt, e.Executor.TaskManager, e.Slots)
}

// String prints the effect for scripts and traces.
func (e StopExecutor) String() string {
	how := "kill"
	if !e.Kill {
		how = "grace=" + e.Grace.String()
	}
	return fmt.Sprintf("StopExecutor %s@%s %s", e.Executor.Attempt, e.Executor.TaskManager, how)
}

// String prints the effect for scripts and traces, with every task.
func (e DeployTasks) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "DeployTasks %s@%s", e.Executor.Attempt, e.Executor.TaskManager)
	if e.Plan.RestoredCheckpoint != 0 {
		fmt.Fprintf(&b, " restored=%d base=%s", e.Plan.RestoredCheckpoint, e.Plan.RestoreBase)
	}
	if len(e.Plan.Savepoints) > 0 {
		fmt.Fprintf(&b, " savepoints=%v", e.Plan.Savepoints)
	}
	if e.Plan.Suspended {
		b.WriteString(" suspended")
	}
	for _, t := range e.Tasks {
		fmt.Fprintf(&b, "\n  task %s", t.Subtask)
		if t.EndOfData {
			b.WriteString(" end-of-data")
		}
		for _, st := range t.Restore {
			fmt.Fprintf(&b, " %s%s", st.UID, handleNames(st.EachHandle))
		}
		for _, s := range t.Splits {
			fmt.Fprintf(&b, " %s", s)
		}
		for _, in := range t.InFlight {
			fmt.Fprintf(&b, " in-flight[%s]", in)
		}
		for _, w := range t.Watermarks {
			fmt.Fprintf(&b, " edge %d from watermark %d", w.Edge, w.Watermark)
		}
	}
	return b.String()
}

// String prints the places of the splits.
func (a SplitAssignment) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "splits=%v", a.Indexes)
	if a.Complete {
		b.WriteString(" complete")
	}
	if a.List {
		b.WriteString(" list")
	}
	return b.String()
}

// String prints the effect for scripts and traces.
func (e AssignSplits) String() string {
	return fmt.Sprintf("AssignSplits @%s to=%s %s", e.Executor.TaskManager, e.Assignment.Subtask, e.Assignment)
}

// String prints the effect for scripts and traces.
func (e TriggerCheckpoint) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "TriggerCheckpoint @%s checkpoint=%d to=%v", e.Executor.TaskManager, e.Barrier.Checkpoint, e.Subtasks)
	if e.Barrier.Savepoint {
		fmt.Fprintf(&b, " savepoint=%s", e.Barrier.SavepointDir)
	}
	if e.Barrier.Stop {
		b.WriteString(" stop")
	}
	if e.Barrier.Drain {
		b.WriteString(" drain")
	}
	if e.Barrier.Alignment != element.Aligned {
		fmt.Fprintf(&b, " %s", e.Barrier.Alignment)
	}
	if e.Barrier.AlignedTimeout != 0 {
		fmt.Fprintf(&b, " aligned-timeout=%dms", e.Barrier.AlignedTimeout)
	}
	if e.Barrier.Base != 0 {
		fmt.Fprintf(&b, " base=%d", e.Barrier.Base)
	}
	return b.String()
}

// String prints the file and its parts by channel.
func (in RestoredInFlight) String() string {
	var b strings.Builder
	b.WriteString(in.Handle.Name)
	for _, p := range in.Parts {
		fmt.Fprintf(&b, " %d:%d+%d", p.Channel, p.Offset, p.Length)
		if p.Rekey {
			b.WriteString("/rekey")
		}
	}
	return b.String()
}

// String prints the effect for scripts and traces.
func (e EndLoops) String() string {
	return fmt.Sprintf("EndLoops @%s checkpoint=%d heads=%v", e.Executor.TaskManager, e.Checkpoint, e.Subtasks)
}

// String prints the effect for scripts and traces.
func (e PersistMetadata) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "PersistMetadata checkpoint=%d kind=%s files=%s", e.Checkpoint.ID, e.Checkpoint.Kind, handleNames(e.Checkpoint.EachHandle))
	for _, list := range e.Checkpoint.Splits {
		fmt.Fprintf(&b, " %s:%d splits", list.UID, len(list.Splits))
	}
	if n := len(e.Checkpoint.EndOfData); n > 0 {
		fmt.Fprintf(&b, " end-of-data=%d", n)
	}
	if e.Dir != "" {
		fmt.Fprintf(&b, " dir=%s", e.Dir)
	}
	return b.String()
}

// String prints the effect for scripts and traces.
func (e PublishCheckpoint) String() string {
	return fmt.Sprintf("PublishCheckpoint checkpoint=%d %s", e.Checkpoint, e.Record)
}

// String prints the effect for scripts and traces.
func (e NotifyComplete) String() string {
	return fmt.Sprintf("NotifyComplete @%s checkpoint=%d", e.Executor.TaskManager, e.Checkpoint)
}

// String prints the effect for scripts and traces.
func (e NotifyAborted) String() string {
	return fmt.Sprintf("NotifyAborted @%s checkpoint=%d reason=%s", e.Executor.TaskManager, e.Checkpoint, e.Reason)
}

// String prints the effect for scripts and traces.
func (e DiscardHandles) String() string {
	var names []string
	for _, h := range e.Handles {
		names = append(names, h.Name)
	}
	s := fmt.Sprintf("DiscardHandles checkpoint=%d %v", e.Checkpoint, names)
	if e.Metadata {
		s += " metadata"
	}
	if e.Dir != "" {
		s += " dir=" + e.Dir
	}
	return s
}

// String prints the effect for scripts and traces.
func (e DiscardCheckpoint) String() string {
	s := "DiscardCheckpoint " + e.Ref.String()
	if e.Claimed {
		s += " claimed"
	}
	if e.Job != "" {
		s += " job=" + string(e.Job)
	}
	if !e.CompletedBy.IsZero() {
		s += " completed-by=" + e.CompletedBy.Format(time.TimeOnly)
	}
	return s
}

// String prints the effect for scripts and traces, with every subtask that has acknowledged.
func (e RecordHistory) String() string {
	var b strings.Builder
	r := e.Report
	fmt.Fprintf(&b, "RecordHistory %s=%d", r.Kind, r.ID)
	if r.Completed {
		fmt.Fprintf(&b, " completed path=%s", r.Path)
	} else {
		fmt.Fprintf(&b, " failure=%s %q", r.Failure, r.Detail)
	}
	if r.Culprit != nil {
		fmt.Fprintf(&b, " declined-by=%s", r.Culprit)
	}
	fmt.Fprintf(&b, " took=%s", r.Duration)
	for v := range r.Parallelism {
		for i, s := range r.Vertex(v) {
			if !s.Acked {
				continue
			}
			fmt.Fprintf(&b, "\n  %d/%d start-delay=%s alignment=%s sync=%s async=%s processed=%d persisted=%d state=%d uploaded=%d channels=%d", v, i,
				s.StartDelay(), s.Stats.Alignment, s.Stats.Sync, s.Stats.Async, s.Stats.ProcessedBytes, s.Stats.PersistedBytes, s.StateBytes, s.UploadedBytes, s.ChannelBytes)
			if s.Stats.Unaligned {
				b.WriteString(" unaligned")
			}
		}
	}
	return b.String()
}

// String prints the effect for scripts and traces.
func (e SweepAttempts) String() string {
	s := fmt.Sprintf("SweepAttempts below=%s keep=%v", e.Below, e.Keep)
	if e.Over {
		s += " over"
	}
	return s
}

// String prints the effect for scripts and traces.
func (e FinishTasks) String() string { return "FinishTasks @" + string(e.Executor.TaskManager) }

// String prints the effect for scripts and traces.
func (e CancelTasks) String() string {
	return fmt.Sprintf("CancelTasks @%s keep-up-to=%d", e.Executor.TaskManager, e.KeepUpTo)
}

// String prints the effect for scripts and traces.
func (e Answer) String() string {
	s := fmt.Sprintf("Answer request=%d status=%s", e.Request, e.Status)
	if e.Path != "" {
		s += fmt.Sprintf(" checkpoint=%d path=%s", e.Checkpoint, e.Path)
	}
	if e.Error != "" {
		s += fmt.Sprintf(" error=%q", e.Error)
	}
	return s
}

// String prints the effect for scripts and traces.
func (e JobEnded) String() string { return "JobEnded " + e.Status.String() }

// String prints the effect for scripts and traces.
func (e StepDown) String() string { return fmt.Sprintf("StepDown token=%d", e.Token) }

func handleNames(each func(func(snapshot.StateHandle))) string {
	var names []string
	each(func(h snapshot.StateHandle) {
		if h.IsInline() {
			names = append(names, "inline")
			return
		}
		names = append(names, h.Name)
	})
	return "[" + strings.Join(names, " ") + "]"
}
