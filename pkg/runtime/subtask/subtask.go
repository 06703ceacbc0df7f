package subtask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Config is what a subtask is made from.
type Config struct {
	Job     ids.JobID
	Attempt ids.AttemptID
	Program *operator.Program
	Graph   *graph.ExecutionGraph
	// Deployment is what the coordinator sent for this subtask.
	Deployment coordinator.TaskDeployment
	// RestoredCheckpoint, RestoreBase, Savepoints and Suspended are as in coordinator.Deployment.
	RestoredCheckpoint ids.CheckpointID
	RestoreBase        string
	Savepoints         []ids.CheckpointID
	Suspended          bool
	// Store writes and reads state files; CheckpointDir is execution.checkpointing.dir.
	Store         *checkpointstore.Store
	CheckpointDir string
	// InlineBytesMax is execution.checkpointing.memory-threshold.
	InlineBytesMax int
	// CreditBytes is the most credit that each input channel's producer may
	// have; see SetInputRate.
	CreditBytes int64
	Backend     statebackend.Backend
	// Incremental is execution.checkpointing.incremental: checkpoints store
	// files of the backend, if it has any, and only those that are new.
	Incremental bool
	// FileReaders read the files of other state backends, by their names.
	FileReaders map[string]FileReader
	// Dir is a directory on local disk for this subtask alone; it need not
	// exist, and is removed when the subtask is closed. Without one, state
	// cannot be restored from files.
	Dir string
	// LocalDir is where the subtasks of the job on this host, of this attempt
	// and later ones, keep copies of what they stored; empty for none.
	LocalDir string
	// Each calls do(0) to do(n-1), several at a time, and returns the first
	// error after all that were called have returned; nil calls one after the
	// other.
	Each   func(n int, do func(i int) error) error
	Output io.Writer
	// Now is the clock of states with time-to-live.
	Now func() time.Time
	// NewBuffer gives buffers for outgoing frames; nil for plain allocation.
	NewBuffer func() ([]byte, element.Owner)
	// Clock measures how long snapshots take; nil measures nothing.
	Clock func() time.Time
	// InFlightBytesMax is execution.checkpointing.unaligned.max-channel-state:
	// how many bytes of records in flight a snapshot may hold in memory.
	InFlightBytesMax int64
	// LoopBytesMax is how much of what comes round a loop its head keeps in
	// memory before it puts more on disk; 0 for 4 MiB.
	LoopBytesMax int64
	// Aligner, if not nil, stands in for align.New: the simulator plants bugs
	// with it.
	Aligner func(kinds []align.ChannelKind) Aligner
}

// FileReader makes the canonical part, or what of it is in groups, of a part in
// files of one state backend. The files stay as they are.
type FileReader func(ctx context.Context, part statebackend.RestoredPart, groups keygroup.Range, maxParallelism int) (statebackend.RestoredPart, error)

// Aligner is what a subtask needs of package align.
type Aligner interface {
	Arrived(ch int, b element.Barrier) []align.Action
	Barrier(ch int, b element.Barrier) []align.Action
	Timeout(id ids.CheckpointID) []align.Action
	CancelMarker(ch int, id ids.CheckpointID) []align.Action
	Abort(id ids.CheckpointID) []align.Action
	EndOfPartition(ch int) []align.Action
	IsBlocked(ch int) bool
}

// phase is the life of a subtask.
type phase uint8

const (
	created phase = iota
	restoring
	running
	cancelling // only what was prepared in vain is still aborted
	ended      // finished, cancelled or failed
)

// Subtask is one subtask of a job. All methods are called by one goroutine.
type Subtask struct {
	cfg      Config
	host     Host
	id       ids.SubtaskID
	chain    *operator.Chain
	pace     operator.Pace
	phase    phase
	in       inputs
	out      outputs
	aligner  Aligner
	snapshot snapshots
	files    fileMaps
	local    localCopies
	commits  commits
	cancel   cancel
	time     eventTime

	isSource bool
	fetching bool // a fetch is with the host
	// paused: a stop barrier has passed, or a stop-with-savepoint is being
	// finished. A source emits nothing until the savepoint is given up.
	paused    bool
	pausedFor ids.CheckpointID
	// draining is the barrier of a stop that waits for the end of this source's data.
	draining     element.Barrier
	loop         loopHead
	ending       bool // the inputs have ended; the last timers are being fired
	endOfData    bool // Finish has been called on the operators
	wasEnded     bool // EndOfData was reached before the restored checkpoint
	dirty        bool // something was collected since the last flush
	recordsIn    int64
	bytesIn      int64
	pendingSplit []coordinator.SplitAssignment // came while restoring
}

// Metrics are counters since the attempt started.
type Metrics struct {
	RecordsIn, RecordsOut int64
	BytesIn, BytesOut     int64
	// OverdraftBytes is how many bytes were collected beyond the credit.
	OverdraftBytes int64
	// SpilledBytes is how many bytes that came round a loop were put on disk.
	SpilledBytes int64
}

// New assembles the subtask's chain. Nothing is opened before Start.
func New(cfg Config, host Host) (*Subtask, error) {
	id := cfg.Deployment.Subtask
	if int(id.Vertex) >= len(cfg.Graph.Vertices) || id.Vertex < 0 {
		return nil, fmt.Errorf("subtask %s: the graph has %d vertices", id, len(cfg.Graph.Vertices))
	}
	s := &Subtask{cfg: cfg, host: host, id: id}
	overtakable := cfg.Graph.OvertakableEdges()
	s.out.init(s, cfg.Graph.OutputChannels(id.Vertex, id.Index), overtakable)
	channels := cfg.Graph.InputChannels(id.Vertex, id.Index)
	s.in.init(cfg.Graph, &cfg.Graph.Vertices[id.Vertex], id.Index, channels, overtakable, cfg.CreditBytes)
	chain, err := operator.Assemble(cfg.Program, cfg.Graph, operator.Place{
		Job: cfg.Job, Attempt: cfg.Attempt, Subtask: id, RestoredCheckpoint: cfg.RestoredCheckpoint,
		Savepoints: cfg.Savepoints, Output: cfg.Output, Backend: cfg.Backend, Dir: cfg.Dir, Now: cfg.Now,
	}, &s.out)
	if err != nil {
		return nil, fmt.Errorf("subtask %s: %w", id, err)
	}
	s.chain = chain
	s.local.init(cfg.LocalDir, id, cfg.RestoredCheckpoint)
	s.isSource = chain.Source != nil
	s.time.init(s, len(channels))
	s.loop.init(s)
	s.paused = cfg.Suspended
	kinds := s.in.kinds()
	if cfg.Aligner != nil {
		s.aligner = cfg.Aligner(kinds)
	} else {
		s.aligner = align.New(kinds)
	}
	return s, nil
}

// ID is the subtask's identity.
func (s *Subtask) ID() ids.SubtaskID { return s.id }

// Pace tells loops to yield: whoever leaves mail for the subtask calls its MailWaits.
func (s *Subtask) Pace() *operator.Pace { return &s.pace }

// Metrics counts what has passed.
func (s *Subtask) Metrics() Metrics {
	m := Metrics{RecordsIn: s.recordsIn, BytesIn: s.bytesIn, BytesOut: s.out.bytes, OverdraftBytes: s.out.overdraft, SpilledBytes: s.loop.spilled}
	for _, w := range s.chain.Writers {
		m.RecordsOut += w.Records()
	}
	return m
}

// Start opens the operators and begins to restore.
func (s *Subtask) Start() {
	invariant.Check(s.phase == created, "subtask life", "subtask %s was started twice", s.id)
	s.phase = restoring
	s.host.Report(StatusReport{Status: coordinator.Initializing})
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		if err := op.Instance.Operator.Open(op.Context); err != nil {
			s.failed(fmt.Errorf("open operator %s: %w", op.Context.Operator, err), op.Context.Operator)
			return
		}
	}
	s.host.Go(Work{Lane: RestoreLane, Name: "restore", Run: s.restore})
}

// ready follows the restore: the subtask is running from now on. It says so when it
// has processed the records that were in flight, and until all do there is no
// checkpoint. One before could have in flight both what was restored and what is
// behind it, on two channels, and a restore could not tell which came first; or
// would have to wait here for records that cannot be sent on, as where an alignment holds
// back a channel further down. (In Flink, too, a task is INITIALIZING for that long.) What
// a loop had logged is not waited for: it may be as much as a disk holds.
func (s *Subtask) ready() {
	if s.phase != restoring {
		return
	}
	s.phase = running
	s.time.begin()
	s.wasEnded = s.cfg.Deployment.EndOfData
	if s.isSource {
		for _, a := range s.cfg.Deployment.Splits {
			s.assign(a)
		}
		for _, a := range s.pendingSplit {
			s.assign(a)
		}
		s.pendingSplit = nil
	}
	s.in.restore(s)
	if s.in.restored == 0 {
		s.host.Report(StatusReport{Status: coordinator.Running})
	}
	for ch := range s.in.channels {
		s.host.Grant(ch, s.in.channels[ch].window)
	}
	s.fetch()
}

// Receive takes a frame that came on an input channel.
func (s *Subtask) Receive(ch int, f element.Frame) {
	if s.isOver() {
		f.Free()
		return
	}
	if f.Kind == element.Records && !s.received(ch, &f) {
		return
	}
	s.in.push(ch, f)
	if f.Kind == element.BarrierKind && s.phase == running {
		s.arrived(ch, f.Barrier)
	}
}

// inputSeconds is how long what waits in front of a subtask should take it. It
// bounds how late a barrier comes behind it, and is longer than a loaded host
// may keep either end of a channel from running.
const inputSeconds = 0.1

// SetInputRate tells the subtask how many bytes a second it consumes, so that
// it can give its producers credit for as much as it will soon have processed:
// a fast one gets a window that covers the pauses of the scheduler, and in
// front of a slow one little piles up. (Flink calls it buffer debloating.)
// Without it, channels keep the window they start with.
func (s *Subtask) SetInputRate(bytesPerSecond float64) {
	n := len(s.in.channels)
	if n == 0 {
		return
	}
	share := int64(bytesPerSecond*inputSeconds) / int64(n)
	s.in.window = min(max(share, windowBytesMin), s.in.windowMax)
}

// AddCredit takes credit that the consumer of an output channel granted.
func (s *Subtask) AddCredit(out Output, bytes int64) {
	if s.isOver() {
		return
	}
	s.out.addCredit(out, bytes)
}

// AssignSplits gives a source splits, or tells it to list them.
func (s *Subtask) AssignSplits(a coordinator.SplitAssignment) {
	switch s.phase {
	case created, restoring:
		s.pendingSplit = append(s.pendingSplit, a)
	case running:
		s.assign(a)
		s.fetch()
	case cancelling, ended:
	}
}

func (s *Subtask) assign(a coordinator.SplitAssignment) {
	if !s.isSource {
		s.failed(fmt.Errorf("subtask %s was assigned splits but is no source", s.id), a.Operator)
		return
	}
	if a.List {
		s.list(a.Operator)
		return
	}
	s.chain.Source.Assign(a.Indexes, a.Splits, a.Complete)
}

// Complete finishes work that the Host carried out.
func (s *Subtask) Complete(done Done) {
	if done != nil {
		done()
	}
}

// Fail ends the subtask because work or user code panicked.
func (s *Subtask) Fail(err error, stack string) {
	switch s.phase {
	case ended:
	case cancelling:
		// It ends as the user wanted; what it still had to abort stays.
		s.cancel.err = errors.Join(s.cancel.err, err)
		s.end(StatusReport{Status: coordinator.Canceled})
	case created, restoring, running:
		s.end(StatusReport{Status: coordinator.Failed, Failure: coordinator.Failure{
			Kind: coordinator.UserFailure, Message: err.Error(), Stack: stack,
		}})
	}
}

// Finish ends the subtask, all its work being committed.
func (s *Subtask) Finish() {
	if !s.isOver() {
		s.end(StatusReport{Status: coordinator.Finished})
	}
}

// isOver reports whether the subtask does nothing for its job any more.
func (s *Subtask) isOver() bool { return s.phase == cancelling || s.phase == ended }

func (s *Subtask) end(r StatusReport) {
	s.phase = ended
	s.in.drop()
	s.out.drop()
	s.host.Report(r)
}

// failed ends the subtask with an error of user code or of its surroundings.
func (s *Subtask) failed(err error, uid ids.OperatorUID) {
	s.failedAs(coordinator.UserFailure, err, uid)
}

// failedAs ends the subtask with an error of that kind, unless it is permanent.
func (s *Subtask) failedAs(kind coordinator.FailureKind, err error, uid ids.OperatorUID) {
	if s.isOver() {
		return
	}
	if operator.IsPermanent(err) {
		kind = coordinator.PermanentFailure
	}
	s.end(StatusReport{Status: coordinator.Failed, Failure: coordinator.Failure{
		Kind: kind, Message: err.Error(), Operator: uid,
	}})
}

// Close closes the operators and gives all memory back. Work that is under
// way must have come back before. What could not be aborted after a Cancel is
// part of the error.
func (s *Subtask) Close() error {
	s.phase = ended
	s.in.drop()
	s.out.drop()
	for _, w := range s.chain.Writers {
		w.Close()
	}
	s.snapshot.drop()
	all := []error{s.cancel.err, s.loop.close()}
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		if err := op.Instance.Operator.Close(); err != nil {
			all = append(all, fmt.Errorf("close operator %s of subtask %s: %w", op.Context.Operator, s.id, err))
		}
	}
	if s.cfg.Dir != "" {
		if err := os.RemoveAll(s.cfg.Dir); err != nil {
			all = append(all, fmt.Errorf("remove directory of subtask %s: %w", s.id, err))
		}
	}
	return errors.Join(all...)
}
