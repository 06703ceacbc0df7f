package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/objectstore/open"
)

const (
	program = "./examples/flights"
	input   = "examples/flights/flights.jsonl"
	// rate makes the 20,000 flights last about 15 seconds.
	rate = 1400
	// taskManagers and slots leave room for all subtasks on two TaskManagers.
	taskManagers, slots, parallelism = 3, 2, 4
	// killAfter is the checkpoint behind which the TaskManager is killed: some
	// seconds into the job, with output committed.
	killAfter = 5
)

// demo is one run.
type demo struct {
	dir     string
	driver  *clidriver.Driver
	cluster *clidriver.Cluster
	truth   *flightstruth.Truth
	job     string
	output  string

	// checkpoints are those that were seen, by ID.
	checkpoints map[uint64]*flightstruth.Checkpoint
	store       *checkpointstore.Store

	victim    victim
	committed flightstruth.Files
	killedAt  time.Time
}

// victim is the TaskManager that is killed.
type victim struct {
	id  string
	pid int
	// subtasks are the indexes of its subtasks with state.
	subtasks []int32
}

// tell prints one line of the story.
func tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (d *demo) run(ctx context.Context) error {
	var err error
	if d.truth, err = flightstruth.Read(input); err != nil {
		return err
	}
	d.checkpoints = map[uint64]*flightstruth.Checkpoint{}
	d.store = checkpointstore.New(open.New(open.Options{}).Open)
	for _, step := range []func(context.Context) error{d.start, d.submit, d.reachMiddle, d.kill, d.recover, d.finish, d.check} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start(ctx context.Context) error {
	began := time.Now()
	var err error
	d.cluster, err = d.driver.StartCluster(ctx, filepath.Join(d.dir, "cluster"),
		"--taskmanagers", fmt.Sprint(taskManagers), "--slots", fmt.Sprint(slots),
		// State of this size would travel inside the acknowledgements: here it is uploaded.
		"-D", "execution.checkpointing.data-inline-threshold=0")
	if err != nil {
		return err
	}
	tell("cluster      JobManager at %s and %d TaskManagers as processes, up after %s", d.cluster.JobManager, taskManagers, seconds(time.Since(began)))
	return nil
}

func (d *demo) submit(ctx context.Context) error {
	absolute, err := filepath.Abs(input)
	if err != nil {
		return err
	}
	d.output = filepath.Join(d.dir, "output")
	d.job, err = d.cluster.Submit(ctx, "--parallelism", fmt.Sprint(parallelism), program, "--",
		"--input", absolute, "--output", d.output, "--rate", fmt.Sprint(rate))
	if err != nil {
		return err
	}
	tell("job          %s counts %d flights at %d per second in %d subtasks", d.job, d.truth.Records, rate, parallelism)
	return nil
}

// await waits for the job and inspects every checkpoint on the way.
func (d *demo) await(ctx context.Context, what string, done func(*cliresult.JobStatus) (bool, error)) (*cliresult.JobStatus, error) {
	return d.cluster.AwaitJob(ctx, d.job, what, func(s *cliresult.JobStatus) (bool, error) {
		d.inspect(ctx, s)
		return done(s)
	})
}

// inspect reads a checkpoint that is new. One that is gone already was
// subsumed; whether the one that counts was seen is checked where it counts.
func (d *demo) inspect(ctx context.Context, s *cliresult.JobStatus) {
	if s.LastCheckpoint == 0 || d.checkpoints[s.LastCheckpoint] != nil {
		return
	}
	if seen, err := flightstruth.Inspect(ctx, d.store, s.LastCheckpointPath); err == nil {
		d.checkpoints[seen.ID] = seen
	}
}

func (d *demo) reachMiddle(ctx context.Context) error {
	status, err := d.await(ctx, fmt.Sprintf("checkpoint %d", killAfter), func(s *cliresult.JobStatus) (bool, error) {
		return s.Status == cliresult.Running && s.LastCheckpoint >= killAfter, nil
	})
	if err != nil {
		return err
	}
	return d.choose(ctx, status)
}

// choose finds a TaskManager that runs subtasks with state.
func (d *demo) choose(ctx context.Context, status *cliresult.JobStatus) error {
	last := d.checkpoints[status.LastCheckpoint]
	if last == nil {
		return fmt.Errorf("checkpoint %d at %s could not be read", status.LastCheckpoint, status.LastCheckpointPath)
	}
	subtasks := last.StatefulSubtasks(status)
	listed, err := d.cluster.TaskManagers(ctx)
	if err != nil {
		return err
	}
	for _, taskManager := range listed {
		if own := subtasks[taskManager.ID]; len(own) > len(d.victim.subtasks) {
			d.victim = victim{id: taskManager.ID, pid: int(taskManager.PID), subtasks: own}
		}
	}
	if d.victim.pid == 0 {
		return errors.New("no TaskManager runs subtasks with state")
	}
	return nil
}

// seconds prints a duration to the hundredth.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
