package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

const (
	// The parallelisms compared, and how many checkpoints are taken of each, in
	// rounds that take turns.
	coordinatorSmall, coordinatorLarge       = 200, 2000
	coordinatorCheckpoints, coordinatorSlots = 20, 10
)

// coordinatorCPU measures the processor time that a checkpoint with tiny state
// takes in the JobManager: acknowledgements and commits are read from their wire
// form, the metadata and the report of the history encoded, and the status made as
// often as a driver does. Sockets and the store are left out.
func coordinatorCPU(_ context.Context, _ *bench) error {
	var small, large []float64
	for range *pairs {
		for _, p := range []int{coordinatorSmall, coordinatorLarge} {
			ms, err := checkpointCPU(p)
			if err != nil {
				return err
			}
			if p == coordinatorSmall {
				small = append(small, ms)
			} else {
				large = append(large, ms)
			}
		}
	}
	growth := make([]float64, len(small))
	for i := range small {
		growth[i] = large[i] / (small[i] * coordinatorLarge / coordinatorSmall)
	}
	fmt.Printf("MEASURE coordinator_cpu_per_checkpoint_%d %.3f ms\n", coordinatorSmall, median(small))
	fmt.Printf("MEASURE coordinator_cpu_per_checkpoint_%d %.3f ms\n", coordinatorLarge, median(large))
	fmt.Printf("RATIO coordinator_cpu_growth %.3f\n", median(growth))
	return nil
}

// checkpointCPU takes some checkpoints of a job of three vertices and returns
// the milliseconds of processor time of one.
func checkpointCPU(parallelism int) (float64, error) {
	run, err := newCoordinatorRun(parallelism)
	if err != nil {
		return 0, err
	}
	if err := run.checkpoint(); err != nil { // the first one makes maps and buffers
		return 0, err
	}
	var spent time.Duration
	for range coordinatorCheckpoints {
		prepared, err := run.prepare()
		if err != nil {
			return 0, err
		}
		before, err := processorTime()
		if err != nil {
			return 0, err
		}
		if err := run.take(prepared); err != nil {
			return 0, err
		}
		after, err := processorTime()
		if err != nil {
			return 0, err
		}
		spent += after - before
	}
	return spent.Seconds() * 1000 / coordinatorCheckpoints, nil
}

// processorTime is what this process has used, the garbage collector included.
func processorTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// coordinatorRun is a running job without a cluster.
type coordinatorRun struct {
	c        *coordinator.Coordinator
	g        graph.ExecutionGraph
	executor ids.ExecutorID
	now      time.Time
	next     ids.CheckpointID
}

const coordinatorJob = ids.JobID("00000000000000000000000000000001")

func newCoordinatorRun(parallelism int) (*coordinatorRun, error) {
	const maxParallelism = 2048
	g, err := graph.Expand(graph.JobGraph{
		Name: "bench", MaxParallelism: maxParallelism,
		Operators: []graph.Operator{
			{UID: "src", Kind: graph.SourceOperator},
			{UID: "count", Kind: graph.ProcessOperator, KeyType: "string"},
			{UID: "out", Kind: graph.SinkOperator, TwoPhase: true},
		},
		Edges: []graph.Edge{{From: "src", To: "count", Partitioner: graph.Hash}, {From: "count", To: "out", Partitioner: graph.Rebalance}},
	}, parallelism)
	if err != nil {
		return nil, err
	}
	r := &coordinatorRun{g: g, now: time.Unix(1_700_000_000, 0), next: 1}
	r.c = coordinator.New(coordinator.Config{
		Job: coordinatorJob, JobName: "bench",
		Checkpointing: coordinator.CheckpointConfig{Interval: time.Second, TolerableFailures: -1, Incremental: true},
	}, g)
	// What a cluster would answer on the way to RUNNING.
	waiting := []coordinator.Event{coordinator.DeadlinePassed{}}
	for len(waiting) > 0 {
		ev := waiting[0]
		waiting = waiting[1:]
		for _, effect := range r.c.Step(r.now, ev) {
			waiting = append(waiting, r.onTheWay(effect)...)
		}
	}
	if status := r.c.Status().Status; status != coordinator.RunningStatus {
		return nil, fmt.Errorf("the job is %s", status)
	}
	return r, nil
}

// onTheWay answers an effect of the deployment.
func (r *coordinatorRun) onTheWay(effect coordinator.Effect) []coordinator.Event {
	switch e := effect.(type) {
	case coordinator.ClaimJob:
		return []coordinator.Event{coordinator.JobClaimed{Token: 1, Record: coordinator.Record{Status: coordinator.Created}}}
	case coordinator.UpdateRecord:
		return []coordinator.Event{coordinator.RecordUpdated{Token: e.Token, Revision: e.Revision}}
	case coordinator.RequestSlots:
		granted := coordinator.SlotsGranted{Attempt: e.Attempt}
		for i := range e.Count {
			granted.Slots = append(granted.Slots, coordinator.Slot{
				TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", i/coordinatorSlots)), Index: int32(i % coordinatorSlots),
			})
		}
		return []coordinator.Event{granted}
	case coordinator.LaunchExecutor:
		return []coordinator.Event{coordinator.ExecutorReady{Executor: e.Executor, DataAddress: "host:1"}}
	case coordinator.DeployTasks:
		r.executor = e.Executor
		var running []coordinator.Event
		for _, task := range e.Tasks {
			running = append(running, coordinator.TaskStatusChanged{Attempt: e.Executor.Attempt, Subtask: task.Subtask, Status: coordinator.Running})
		}
		return running
	}
	return nil
}

// preparedReports are what the executors send for one checkpoint.
type preparedReports struct{ acks, commits [][]byte }

// prepare makes the reports of the next checkpoint, as executors do.
func (r *coordinatorRun) prepare() (preparedReports, error) {
	var out preparedReports
	for _, s := range r.g.Subtasks() {
		v := &r.g.Vertices[s.Vertex]
		st := snapshot.OperatorSubtaskState{UID: v.Chain[0]}
		if s.Vertex == 1 {
			groups := keygroup.RangeOf(int(s.Index), v.Parallelism, r.g.MaxParallelism)
			st.Keyed = []snapshot.KeyedStateHandle{{
				Handle: snapshot.StateHandle{Size: 20, CRC32C: 1, Inline: make([]byte, 20)}, Range: groups, Offsets: make([]int64, groups.Len()+1),
			}}
			for i := range st.Keyed[0].Offsets {
				st.Keyed[0].Offsets[i] = min(int64(i), 20)
			}
			st.Keyed[0].Offsets[groups.Len()] = 20
		} else {
			st.Lists = []snapshot.OperatorStateHandle{{
				Name: "l", Redistribution: snapshot.SplitEvenly, Elements: []int64{20}, Handle: snapshot.StateHandle{Size: 20, CRC32C: 1, Inline: make([]byte, 20)},
			}}
		}
		state := snapshot.SubtaskState{Subtask: s, Operators: []snapshot.OperatorSubtaskState{st}}
		ack, err := proto.Marshal(&pb.ExecutorReport{Kind: &pb.ExecutorReport_Acked{Acked: &pb.CheckpointAcked{
			Checkpoint: uint64(r.next), State: state.ToProto(), AlignmentUs: 1000, SyncUs: 200, AsyncUs: 3000, ProcessedBytes: 1 << 16,
		}}})
		if err != nil {
			return out, fmt.Errorf("encode an acknowledgement: %w", err)
		}
		commit, err := proto.Marshal(&pb.ExecutorReport{Kind: &pb.ExecutorReport_CommitAcked{CommitAcked: &pb.CommitAcked{
			Checkpoint: uint64(r.next), Subtask: &pb.SubtaskRef{Vertex: int32(s.Vertex), Index: s.Index},
		}}})
		if err != nil {
			return out, fmt.Errorf("encode a commit: %w", err)
		}
		out.acks, out.commits = append(out.acks, ack), append(out.commits, commit)
	}
	return out, nil
}

func (r *coordinatorRun) checkpoint() error {
	prepared, err := r.prepare()
	if err != nil {
		return err
	}
	return r.take(prepared)
}

// take runs one checkpoint from its trigger to its last commit.
func (r *coordinatorRun) take(prepared preparedReports) error {
	r.now, _ = r.c.NextDeadline()
	if err := r.carryOut(r.c.Step(r.now, coordinator.DeadlinePassed{})); err != nil {
		return err
	}
	for _, list := range [][][]byte{prepared.acks, prepared.commits} {
		for i, content := range list {
			if err := r.report(content); err != nil {
				return err
			}
			if i%coordinatorSlots == 0 {
				// A driver does so after each batch of events.
				r.c.Status()
				r.c.NextDeadline()
			}
		}
	}
	if latest := r.c.Status().Latest.ID; latest != r.next {
		return fmt.Errorf("checkpoint %d was not completed, the latest is %d", r.next, latest)
	}
	r.next++
	return nil
}

func (r *coordinatorRun) report(content []byte) error {
	var message pb.ExecutorReport
	if err := proto.Unmarshal(content, &message); err != nil {
		return fmt.Errorf("read a report: %w", err)
	}
	event, _, err := driver.EventOfReport(r.executor, &message)
	if err != nil {
		return err
	}
	return r.carryOut(r.c.Step(r.now, event))
}

// carryOut does what costs the JobManager's processor, and answers as its store does.
func (r *coordinatorRun) carryOut(effects []coordinator.Effect) error {
	for _, effect := range effects {
		var answer coordinator.Event
		switch e := effect.(type) {
		case coordinator.PersistMetadata:
			if _, err := checkpointstore.EncodeMetadata(e.Checkpoint); err != nil {
				return err
			}
			answer = coordinator.MetadataPersisted{Token: e.Token, Checkpoint: e.Checkpoint.ID, URI: fmt.Sprint("/checkpoints/chk-", e.Checkpoint.ID)}
		case coordinator.PublishCheckpoint:
			answer = coordinator.CheckpointPublished{Token: e.Token, Checkpoint: e.Checkpoint}
		case coordinator.UpdateRecord:
			answer = coordinator.RecordUpdated{Token: e.Token, Revision: e.Revision}
		case coordinator.RecordHistory:
			if _, err := checkpointstore.EncodeReport(e.Report); err != nil {
				return err
			}
		}
		if answer == nil {
			continue
		}
		if err := r.carryOut(r.c.Step(r.now, answer)); err != nil {
			return err
		}
	}
	return nil
}
