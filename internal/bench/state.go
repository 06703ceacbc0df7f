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

// stateKeys are the keys of the measurements of state on disk: with values of
// 208 bytes they are 2 GB.
const stateKeys = "10000000"

// printMemory prints the peak of resident memory beside a figure.
func printMemory(name string, f figures) {
	fmt.Printf("MEASURE %s_resident %.0f MiB\n", name, f["resident_mib"])
}

// diskRatio is a ratio of two benchmarks of state on disk.
func (b *bench) diskRatio(ctx context.Context, name, benchmark, base string) error {
	var last figures
	rate := func(benchmark string) func() (float64, error) {
		return func() (float64, error) {
			f, err := b.measure(ctx, benchmark, "-keys", stateKeys)
			last = f
			return f["updates_per_second"], err
		}
	}
	// The job of a pair is measured last.
	if err := b.ratio(name, "updates/s", rate(benchmark), rate(base)); err != nil {
		return err
	}
	printMemory(name, last)
	return nil
}

func pebbleHotVsMemory(ctx context.Context, b *bench) error {
	return b.diskRatio(ctx, "pebble_hot_vs_memory", "hot-pebble", "hot-memory")
}

func pebbleColdVsRaw(ctx context.Context, b *bench) error {
	return b.diskRatio(ctx, "pebble_cold_vs_raw", "cold-pebble", "cold-raw")
}

func pebbleFreeze(ctx context.Context, b *bench) error {
	f, err := b.measure(ctx, "freeze-pebble")
	if err != nil {
		return err
	}
	fmt.Printf("MEASURE pebble_freeze %.3f ms\n", f["median_ms"])
	fmt.Printf("MEASURE pebble_freeze_longest %.3f ms\n", f["longest_ms"])
	return nil
}

func incrementalBytes(ctx context.Context, b *bench) error {
	f, err := b.measure(ctx, "incremental", "-keys", stateKeys)
	if err != nil {
		return err
	}
	fmt.Printf("RATIO incremental_bytes_vs_full %.3f\n", f["uploaded_bytes"]/f["full_bytes"])
	fmt.Printf("BASE incremental_bytes_vs_full %.0f bytes\n", f["full_bytes"])
	printMemory("incremental_bytes_vs_full", f)
	return nil
}

// restoreVsCopy makes its pairs in one process, with the same files.
func restoreVsCopy(ctx context.Context, b *bench) error {
	f, err := b.measure(ctx, "restore", "-keys", stateKeys)
	if err != nil {
		return err
	}
	pair := -1
	return b.ratio("restore_vs_copy", "bytes/s",
		func() (float64, error) { return f[fmt.Sprintf("restored_%d", pair)], nil },
		func() (float64, error) {
			pair++
			return f[fmt.Sprintf("copied_%d", pair)], nil
		})
}
