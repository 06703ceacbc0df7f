package sim

import (
	"context"
	"fmt"

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
	graph   graph.ExecutionGraph
}

// submit stores a new job. JobManagers that start later find it; the leader is told.
func (c *cluster) submit(o simjob.Options, restoreFrom string) {
	j := &job{
		id:      ids.JobID(fmt.Sprintf("%06x%026x", len(c.jobs)+1, 0)),
		name:    fmt.Sprintf("job-%d", len(c.jobs)+1),
		options: o, restoreFrom: restoreFrom,
	}
	if restoreFrom != "" {
		j.previous = c.jobs[len(c.jobs)-1]
	}
	program, err := simjob.Program(o, c.world)
	if err == nil {
		c.observeInputs(program)
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
	c.trace.add("%s is submitted, restored from %q", j.name, restoreFrom)
	c.jobs = append(c.jobs, j)
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
	if status == coordinator.FailedStatus {
		c.fail("progress", "%s failed: %+v", j.name, record.Cause)
	}
	if status == coordinator.FinishedStatus && record.StopSavepoint {
		o := j.options
		o.SourceParallelism, o.CountParallelism, o.SinkParallelism = c.options.Next[0], c.options.Next[1], c.options.Next[2]
		c.result.Stops++
		c.submit(o, record.Latest.URI)
	}
}
