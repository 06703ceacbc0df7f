// Command composecheck shows on the compose cluster what the demo shows with
// processes: a TaskManager's container is killed in the middle of the flights
// job, and every flight is still counted once. make cluster-e2e runs it behind
// make images. It takes the cluster down again however it ends, and fails where
// there is no Docker engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/flightstruth"
)

// checkTimeout is several times what the check takes: behind it something hangs.
const checkTimeout = 6 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster-e2e failed:", err)
		os.Exit(1)
	}
	tell("cluster-e2e passed")
}

func tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func run(ctx context.Context) error {
	c, err := newComposeCluster(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "weir-compose-")
	if err != nil {
		return err
	}
	binary, err := filepath.Abs("bin/flinkctl")
	if err != nil {
		return err
	}
	truth, err := flightstruth.Read(input)
	if err != nil {
		return err
	}
	check := &check{
		compose: c, dir: dir, truth: truth,
		driver: &clidriver.Driver{Binary: binary, JobManager: c.jobManager},
	}
	err = check.run(ctx)
	down := context.WithoutCancel(ctx)
	if err != nil {
		c.showLogs(down)
	}
	return errors.Join(err, c.down(down), os.RemoveAll(dir))
}
