package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

const (
	program = "./examples/flights"
	input   = "examples/flights/flights.jsonl"
	// rate makes the 20,000 flights last about 15 seconds.
	rate = 1400
	// The job fits on the two TaskManagers that are left; deploy/config.yaml gives each two slots.
	taskManagers, parallelism = 3, 4
	// killAfter is the checkpoint behind which the container is killed.
	killAfter = 5
	// checkpoints is where deploy/config.yaml puts them.
	checkpoints = "s3://weir/checkpoints"
	// Where the volume has the job's data, in every container.
	inputInside, outputInside = "/data/input/flights.jsonl", "/data/output"
)

// check is one run.
type check struct {
	compose *composeCluster
	driver  *clidriver.Driver
	dir     string
	truth   *flightstruth.Truth
	opener  *open.Opener

	jobManager string            // its container
	hosts      map[string]string // of TaskManagers, by container

	job       string
	victim    string // container
	host      string // its hostname
	lost      []int32
	committed flightstruth.Files
	killedAt  time.Time
}

func (c *check) run(ctx context.Context) error {
	c.opener = open.New(open.Options{S3: s3.Options{
		Endpoint: "http://" + c.compose.s3, AccessKey: "weir", SecretKey: s3Secret, PathStyle: true,
	}})
	for _, step := range []func(context.Context) error{c.start, c.submit, c.reachMiddle, c.kill, c.recover, c.finish, c.bringBack} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) start(ctx context.Context) error {
	began := time.Now()
	if err := c.compose.up(ctx, taskManagers); err != nil {
		return err
	}
	if err := c.awaitTaskManagers(ctx, taskManagers); err != nil {
		return err
	}
	if err := c.findContainers(ctx); err != nil {
		return err
	}
	tell("cluster up with %d TaskManagers after %.1f s; JobManager at %s", taskManagers, time.Since(began).Seconds(), c.compose.jobManager)
	return nil
}

// findContainers asks compose before the job runs: it takes its time, and the
// kill is to come in the middle of the job.
func (c *check) findContainers(ctx context.Context) error {
	jobManagers, err := c.compose.containers(ctx, "jobmanager")
	if err != nil {
		return err
	}
	if len(jobManagers) != 1 {
		return fmt.Errorf("there are %d JobManager containers", len(jobManagers))
	}
	c.jobManager = jobManagers[0]
	containers, err := c.compose.containers(ctx, "taskmanager")
	if err != nil {
		return err
	}
	c.hosts = map[string]string{}
	for _, container := range containers {
		if c.hosts[container], err = c.compose.hostname(ctx, container); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) awaitTaskManagers(ctx context.Context, want int) error {
	return clidriver.Poll(ctx, fmt.Sprintf("%d registered TaskManagers", want), func() (bool, error) {
		listed, err := c.driver.TaskManagers(ctx)
		var exit *clidriver.ExitError
		if errors.As(err, &exit) {
			return false, nil // the JobManager is still starting
		}
		return len(listed) == want, err
	})
}

func (c *check) submit(ctx context.Context) error {
	// A directory of that name is copied as one, with the file in it.
	staged := filepath.Join(c.dir, "input")
	if err := os.MkdirAll(staged, 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(staged, "flights.jsonl"), content, 0o644); err != nil {
		return err
	}
	if _, err := c.compose.docker(ctx, "cp", staged, c.jobManager+":/data"); err != nil {
		return err
	}
	c.job, err = c.driver.Submit(ctx, "--parallelism", fmt.Sprint(parallelism),
		"-D", "execution.checkpointing.data-inline-threshold=0",
		program, "--", "--input", inputInside, "--output", outputInside, "--rate", fmt.Sprint(rate))
	if err != nil {
		return err
	}
	tell("submitted job %s from the host", c.job)
	return nil
}

func (c *check) reachMiddle(ctx context.Context) error {
	status, err := c.driver.AwaitJob(ctx, c.job, fmt.Sprintf("checkpoint %d", killAfter), func(s *cliresult.JobStatus) (bool, error) {
		return s.Status == cliresult.Running && s.LastCheckpoint >= killAfter, nil
	})
	if err != nil {
		return err
	}
	names, err := c.listMetadata(ctx)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no chk-n/_metadata while the job runs", checkpoints)
	}
	tell("in the bucket while it runs: %s", strings.Join(names, ", "))
	last, err := c.inspect(ctx, status.LastCheckpointPath)
	if err != nil {
		return err
	}
	return c.choose(last.StatefulSubtasks(status))
}

// listMetadata lists the metadata of the job's checkpoints.
func (c *check) listMetadata(ctx context.Context) ([]string, error) {
	store, err := c.opener.Open(checkpoints)
	if err != nil {
		return nil, err
	}
	var names []string
	for object, err := range store.List(ctx, c.job+"/") {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(object.Name, "/_metadata") {
			names = append(names, object.Name)
		}
	}
	return names, nil
}

func (c *check) inspect(ctx context.Context, uri string) (*flightstruth.Checkpoint, error) {
	return flightstruth.Inspect(ctx, checkpointstore.New(c.opener.Open), uri)
}

// choose finds a container whose TaskManager runs subtasks with state. A
// TaskManager's ID starts with its host's name.
func (c *check) choose(subtasks map[string][]int32) error {
	for container, host := range c.hosts {
		for taskManager, own := range subtasks {
			if strings.HasPrefix(taskManager, host) && len(own) > len(c.lost) {
				c.victim, c.host, c.lost = container, host, slices.Sorted(slices.Values(own))
			}
		}
	}
	if c.victim == "" {
		return fmt.Errorf("no container runs subtasks with state: %v", subtasks)
	}
	return nil
}
