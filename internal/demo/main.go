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
)

// demoTimeout is several times what the demo takes: behind it something hangs.
const demoTimeout = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	binary, err := filepath.Abs("bin/flinkctl")
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("bin/flinkctl is missing, run make build first: %w", err)
	}
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	d := &demo{dir: dir, driver: &clidriver.Driver{Binary: binary}}
	err = d.run(ctx)
	if d.cluster != nil {
		// Also when the demo was interrupted: its processes never outlive it.
		err = errors.Join(err, d.cluster.Stop(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs and output are in %s", err, dir)
	}
	return os.RemoveAll(dir)
}
