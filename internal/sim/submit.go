package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// jobCode is what a job's binary has in memory.
type jobCode struct {
	program *operator.Program
	// code is the same program, unwatched.
	code  *operator.Program
	graph graph.ExecutionGraph
}

// submission is a job as its user submits it.
type submission struct {
	options simjob.Options
	// from is the savepoint or checkpoint that it starts from, nil for none;
	// claim makes that the job's own.
	from  *published
	claim bool
	// inFiles: its keyed state is in files.
	inFiles bool
	// instead is what the user submits when this one is refused, as it must be.
	instead *submission
}

func (s *submission) restoreFrom() string {
	if s.from == nil {
		return ""
	}
	return s.from.uri
}

// isRefused reports whether the job cannot be restored.
func (s *submission) isRefused() bool { return s.instead != nil }

// number counts the jobs from 1.
func (j *job) number() uint64 {
	n, err := strconv.ParseUint(string(j.id[:6]), 16, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// submit stores a new job. JobManagers that start later find it; the leader is told.
func (c *cluster) submit(a *app, s submission) {
	j := &job{
		app:        a,
		id:         ids.JobID(fmt.Sprintf("%06x%026x", len(c.jobs)+1, 0)),
		name:       fmt.Sprintf("job-%d", len(c.jobs)+1),
		submission: s,
	}
	program, err := simjob.Program(s.options, a.world)
	if err == nil {
		j.code, err = simjob.Program(s.options, simjob.NewWorld())
	}
	if err == nil {
		c.observeInputs(program)
		c.observeGenerators(program)
		j.program = program
		j.graph, err = graph.Expand(program.Graph, 1)
	}
	if err != nil {
		panic(err)
	}
	first := c.storage.exactRecords.CreateRecord(context.Background(), driver.FirstRecord(j.id, c.nonce()))
	if first.Outcome != checkpointstore.Swapped {
		panic(first.Err)
	}
	c.trace.add("%s is submitted, restored from %q", j.name, j.restoreFrom())
	c.jobs, a.jobs = append(c.jobs, j), append(a.jobs, j)
	if j.from != nil && !j.isRefused() {
		for _, name := range j.from.stored.Transactions {
			c.checks.allowed[name] = true // a plain savepoint's come with the restore
		}
	}
	if jm := c.leader; jm != nil {
		jm.do(func() { jm.start(j) })
	}
}

// jobEnded follows the end of a job under one JobManager. What counts is the
// record, so a JobManager that ends a job again changes nothing.
func (c *cluster) jobEnded(d *jobDriver, status coordinator.JobStatus) {
	j := d.job
	record, err := c.storage.exactRecords.ReadRecord(context.Background(), j.id)
	if err != nil {
		c.fail("record", "the record of %s cannot be read: %v", j.name, err)
	}
	if record.Status != status.String() {
		c.fail("record", "%s ended as %s, its record says %s", j.name, status, record.Status)
	}
	if j.ended {
		return
	}
	j.ended, j.status = true, status
	if status == coordinator.FailedStatus && c.failsCorrupt(j, record) {
		return
	}
	if status == coordinator.FailedStatus {
		c.checkRefused(j, record)
		c.submit(j.app, *j.instead)
		return
	}
	if j.isRefused() && status == coordinator.CanceledStatus {
		return // its user was faster
	}
	if j.isRefused() {
		c.fail("I7", "%s is %s, though its max parallelism is not that of what it started from", j.name, status)
	}
	switch {
	case c.isDrained(c.latest(j)):
		// Event time has come to its end: no record is read behind it.
	case status == coordinator.FinishedStatus && record.StopSavepoint && j.plan != nil:
		c.resume(j, c.latest(j), StopWithSavepoint)
	case status == coordinator.CanceledStatus && j.savepoint != "":
		p := c.checks.byURI[j.savepoint]
		if p == nil {
			c.fail("I3", "%s was told of savepoint %s, which no record has named", j.name, j.savepoint)
		}
		c.fork(j.app, p)
		c.resume(j, p, SavepointAndCancel)
	case status == coordinator.CanceledStatus && j.resumes:
		if p := c.latest(j); p != nil && c.isAheadOf(p) {
			// Cancelled between falling back and taking back: he goes back himself.
			c.fork(j.app, p)
		}
		c.resume(j, c.latest(j), CancelAndResume)
	}
}

// isDrained reports whether a checkpoint is the savepoint of a stop that drained.
func (c *cluster) isDrained(p *published) bool {
	return p != nil && c.checks.triggered[checkpointName{p.checkpoint.Job, p.checkpoint.ID}].barrier.Drain
}

// resume submits the job that goes on where another has ended.
func (c *cluster) resume(j *job, from *published, how RescaleKind) {
	x := j.plan
	c.result.Rescales[how]++
	s := submission{options: j.options, from: from, claim: x.Claim && from != nil, inFiles: j.inFiles != x.OtherBackend}
	if x.OtherBackend {
		c.result.OtherBackend++
	}
	s.options.SourceParallelism, s.options.CountParallelism, s.options.SinkParallelism = x.Sources, x.Counts, x.Sinks
	s.options.Flow = x.Flow
	if s.options.Stateful {
		s.options.RuledParallelism = x.Ruled
	}
	if s.claim {
		c.result.Claims++
	}
	if x.WrongMax && from != nil {
		right := s
		s.options.MaxParallelism += 1 + c.random.IntN(8)
		s.instead = &right
	}
	c.submit(j.app, s)
}

// checkRefused sees a job fail, which only one with another max parallelism may.
func (c *cluster) checkRefused(j *job, record checkpointstore.VersionedRecord) {
	if !j.isRefused() || record.Cause == nil {
		c.fail("progress", "%s failed: %+v", j.name, record.Cause)
	}
	for _, n := range []int{j.options.MaxParallelism, j.instead.options.MaxParallelism} {
		if !strings.Contains(record.Cause.Message, strconv.Itoa(n)) {
			c.fail("I7", "%s was refused without naming max parallelism %d: %s", j.name, n, record.Cause.Message)
		}
	}
	c.result.Refused++
}
