package clidriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/internal/cliresult"
)

// Cluster is a local cluster that was started through flinkctl.
type Cluster struct {
	*Driver
	// Dir is the cluster's directory.
	Dir string
}

// StartCluster starts a local cluster in dir with the flags given. Its
// JobManager gets a free port unless a flag says otherwise.
func (d *Driver) StartCluster(ctx context.Context, dir string, flags ...string) (*Cluster, error) {
	driver := *d
	c := &Cluster{Driver: &driver, Dir: dir}
	args := append([]string{"cluster", "start", "--dir", dir, "-D", "jobmanager.rpc.port=0"}, flags...)
	if _, err := d.Run(ctx, args...); err != nil {
		return nil, err
	}
	if err := c.findJobManager(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// findJobManager takes the address of the JobManager that runs.
func (c *Cluster) findJobManager(ctx context.Context) error {
	processes, err := c.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range processes {
		// Not written for nothing: others may be reading it.
		if p.Role == cliresult.JobManagerRole && p.Address != c.JobManager {
			c.JobManager = p.Address
		}
	}
	return nil
}

// Restart starts what is missing of the cluster. A JobManager whose port was free
// for a moment, and was taken by somebody else, gets another one.
func (c *Cluster) Restart(ctx context.Context) error {
	if _, err := c.Run(ctx, "cluster", "start", "--dir", c.Dir); err != nil {
		return err
	}
	return c.findJobManager(ctx)
}

// Stop stops the cluster.
func (c *Cluster) Stop(ctx context.Context) error {
	_, err := c.Run(ctx, "cluster", "stop", "--dir", c.Dir)
	return err
}

// Processes lists the cluster's processes.
func (c *Cluster) Processes(ctx context.Context) (listed []cliresult.Process, err error) {
	return listed, c.Read(ctx, &listed, "cluster", "status", "--dir", c.Dir)
}

// Process returns the process of that name.
func (c *Cluster) Process(ctx context.Context, name string) (cliresult.Process, error) {
	processes, err := c.Processes(ctx)
	if err != nil {
		return cliresult.Process{}, err
	}
	for _, p := range processes {
		if p.Name == name {
			return p, nil
		}
	}
	return cliresult.Process{}, fmt.Errorf("the cluster in %s has no process %s", c.Dir, name)
}
