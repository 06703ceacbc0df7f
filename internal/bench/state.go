package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// measure runs one benchmark of state in a process of its own, with an empty
// directory for its files.
func (b *bench) measure(ctx context.Context, benchmark string, args ...string) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	files, err := os.MkdirTemp(b.dir, "state-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for state: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(files)) }()
	result := filepath.Join(b.dir, "result")
	args = append([]string{"-benchmark", benchmark, "-result", result, "-dir", files}, args...)
	if _, err := output(exec.CommandContext(ctx, b.state, args...)); err != nil {
		return nil, err
	}
	return readFigures(result)
}

func memoryValueVsMap(ctx context.Context, b *bench) error {
	rate := func(benchmark string) func() (float64, error) {
		return func() (float64, error) {
			f, err := b.measure(ctx, benchmark)
			return f["updates_per_second"], err
		}
	}
	return b.ratio("memory_value_rmw_vs_map", "updates/s", rate("value-rmw"), rate("map-rmw"))
}

func memoryFreeze(ctx context.Context, b *bench) error {
	for _, x := range []struct {
		keys int
		name string
	}{{1_000_000, "1m"}, {10_000_000, "10m"}} {
		f, err := b.measure(ctx, "freeze", "-keys", strconv.Itoa(x.keys))
		if err != nil {
			return err
		}
		fmt.Printf("MEASURE memory_freeze_%s %.3f ms\n", x.name, f["median_ms"])
		fmt.Printf("MEASURE memory_freeze_%s_longest %.3f ms\n", x.name, f["longest_ms"])
	}
	return nil
}

// duringSnapshot compares two stretches of one process: its pairs are not two
// runs.
func duringSnapshot(ctx context.Context, b *bench) error {
	var f figures
	return b.ratio("throughput_during_snapshot_vs_before", "updates/s",
		func() (float64, error) { return f["during_per_second"], nil },
		func() (_ float64, err error) {
			f, err = b.measure(ctx, "during-snapshot")
			return f["before_per_second"], err
		})
}
