package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runTimeout bounds one submission: the longest takes a few seconds.
const runTimeout = 2 * time.Minute

// stateTimeout bounds one benchmark of state: the longest writes gigabytes first.
const stateTimeout = 10 * time.Minute

var pairs = flag.Int("pairs", 5, "measure `N` interleaved pairs for each ratio")

// benchmarks in the order in which they run.
var benchmarks = []benchmark{
	{name: "coordinator_cpu_per_checkpoint", run: coordinatorCPU},
	{name: "memory_value_rmw_vs_map", run: memoryValueVsMap},
	{name: "memory_freeze", run: memoryFreeze},
	{name: "throughput_during_snapshot_vs_before", run: duringSnapshot},
	{name: "pebble_hot_vs_memory", run: pebbleHotVsMemory},
	{name: "pebble_freeze", run: pebbleFreeze},
	{name: "pebble_cold_vs_raw", run: pebbleColdVsRaw},
	{name: "incremental_bytes_vs_full", run: incrementalBytes},
	{name: "restore_vs_copy", run: restoreVsCopy},
	{name: "keyed_count_vs_map", onCluster: true, run: keyedCountVsMap},
	{name: "exchange_vs_raw_grpc", onCluster: true, run: exchangeVsRawGRPC},
	{name: "allocations", onCluster: true, run: allocations},
	{name: "latency", onCluster: true, run: latency},
	{name: "throughput_with_checkpoints_vs_without", onCluster: true, run: withCheckpoints},
	{name: "unaligned_vs_aligned_duration", onCluster: true, run: unalignedVsAligned},
}

type benchmark struct {
	name string
	// onCluster: it needs the local cluster.
	onCluster bool
	run       func(ctx context.Context, b *bench) error
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./internal/bench [-pairs N] [NAME…]\n\nbenchmarks:")
		for _, x := range benchmarks {
			fmt.Fprintln(flag.CommandLine.Output(), "  "+x.name)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(names []string) error {
	for _, name := range names {
		known := false
		for _, x := range benchmarks {
			known = known || x.name == name
		}
		if !known {
			return fmt.Errorf("there is no benchmark %q: see go run ./internal/bench -h", name)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	b := &bench{
		dir: dir, job: filepath.Join(dir, "benchjob"), state: filepath.Join(dir, "statebench"), flinkctl: filepath.Join("bin", "flinkctl"),
	}
	err = b.runAll(ctx, names)
	if removeErr := os.RemoveAll(dir); err == nil && removeErr != nil {
		err = fmt.Errorf("remove %s: %w", dir, removeErr)
	}
	return err
}

// bench is one run of benchmarks on one local cluster.
type bench struct {
	dir      string
	job      string // the built job program
	state    string // the built program that measures state by itself
	flinkctl string
}

func (b *bench) runAll(ctx context.Context, names []string) error {
	for program, source := range map[string]string{b.job: "./internal/bench/benchjob", b.state: "./internal/bench/statebench"} {
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", source, err, out)
		}
	}
	var alone, onCluster []benchmark
	for _, x := range benchmarks {
		switch {
		case len(names) > 0 && !slices.Contains(names, x.name):
		case x.onCluster:
			onCluster = append(onCluster, x)
		default:
			alone = append(alone, x)
		}
	}
	if err := b.runEach(ctx, alone); err != nil || len(onCluster) == 0 {
		return err
	}
	return b.withCluster(ctx, func() error { return b.runEach(ctx, onCluster) })
}

func (b *bench) runEach(ctx context.Context, list []benchmark) error {
	for _, x := range list {
		if err := x.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

// withCluster runs do beside a local cluster of two TaskManagers with one slot
// each: a job of parallelism 2 has its second subtask in another process.
func (b *bench) withCluster(ctx context.Context, do func() error) (err error) {
	cluster := filepath.Join(b.dir, "cluster")
	if _, err := b.ctl(ctx, "cluster", "start", "--dir", cluster, "--taskmanagers", "2", "--slots", "1"); err != nil {
		return err
	}
	defer func() {
		// Also after an interrupt: the processes must not stay.
		if _, stopErr := b.ctl(context.WithoutCancel(ctx), "cluster", "stop", "--dir", cluster); err == nil {
			err = stopErr
		}
	}()
	address, err := b.jobManager(ctx, cluster)
	if err != nil {
		return err
	}
	if err := os.Setenv("WEIR_JOBMANAGER", address); err != nil {
		return fmt.Errorf("set WEIR_JOBMANAGER: %w", err)
	}
	return do()
}

// ctl runs flinkctl and returns its stdout.
func (b *bench) ctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	return output(exec.CommandContext(ctx, b.flinkctl, args...))
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}

// submit runs the job on the cluster and returns what it measured.
func (b *bench) submit(ctx context.Context, benchmark string, args ...string) (figures, error) {
	result := filepath.Join(b.dir, "result")
	args = append([]string{"submit", b.job, "--", "-benchmark", benchmark, "-result", result}, args...)
	if _, err := b.ctl(ctx, args...); err != nil {
		return nil, err
	}
	return readFigures(result)
}

// baseline runs the program by itself and returns what it measured.
func (b *bench) baseline(ctx context.Context, benchmark string, args ...string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	result := filepath.Join(b.dir, "result")
	args = append([]string{"-benchmark", benchmark, "-result", result}, args...)
	if _, err := output(exec.CommandContext(ctx, b.job, args...)); err != nil {
		return nil, err
	}
	return readFigures(result)
}

// figures are the measured values by name.
type figures map[string]float64

// readFigures reads and removes a result file.
func readFigures(file string) (figures, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read what was measured: %w", err)
	}
	if err := os.Remove(file); err != nil {
		return nil, fmt.Errorf("remove result: %w", err)
	}
	f := figures{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read what was measured: line %q: %w", line, err)
		}
		f[name] = v
	}
	return f, nil
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// ratio measures pairs, job and baseline in turn, and prints the median ratio.
func (b *bench) ratio(name, unit string, job, base func() (float64, error)) error {
	var ratios, bases, jobs []float64
	for i := range *pairs {
		baseValue, err := base()
		if err != nil {
			return err
		}
		jobValue, err := job()
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s pair %d: %.0f against %.0f %s\n", name, i+1, jobValue, baseValue, unit)
		ratios = append(ratios, jobValue/baseValue)
		bases, jobs = append(bases, baseValue), append(jobs, jobValue)
	}
	fmt.Printf("RATIO %s %.3f\n", name, median(ratios))
	fmt.Printf("BASE %s %.0f %s\n", name, median(bases), unit)
	fmt.Printf("MEASURE %s_job %.0f %s\n", name, median(jobs), unit)
	return nil
}

func keyedCountVsMap(ctx context.Context, b *bench) error {
	args := []string{"-records", "30000000"}
	return b.ratio("keyed_count_vs_map", "records/s",
		func() (float64, error) {
			f, err := b.submit(ctx, "keyed-count", args...)
			return f["records_per_second"], err
		},
		func() (float64, error) {
			f, err := b.baseline(ctx, "map", args...)
			return f["records_per_second"], err
		})
}

func exchangeVsRawGRPC(ctx context.Context, b *bench) (err error) {
	server := exec.CommandContext(ctx, b.job, "-benchmark", "raw-server")
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.Stderr = os.Stderr
	pipe, err := server.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the raw server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the raw server: %w", err)
	}
	defer func() {
		if stopErr := errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait()); err == nil {
			err = stopErr
		}
	}()
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the raw server's address: %w", err)
	}
	args := []string{"-records", "20000000"}
	return b.ratio("exchange_vs_raw_grpc", "bytes/s",
		func() (float64, error) {
			f, err := b.submit(ctx, "exchange", args...)
			return f["bytes_per_second"], err
		},
		func() (float64, error) {
			f, err := b.baseline(ctx, "raw-client", append(args, "-address", strings.TrimSpace(line))...)
			return f["bytes_per_second"], err
		})
}

func allocations(ctx context.Context, b *bench) error {
	for _, x := range []struct{ benchmark, name, records string }{
		{"keyed-count", "allocations_per_record_chain_fixed", "30000000"},
		{"exchange", "allocations_per_record_exchange_fixed", "20000000"},
		{"exchange-string", "allocations_per_record_exchange_string", "10000000"},
	} {
		f, err := b.submit(ctx, x.benchmark, "-records", x.records)
		if err != nil {
			return err
		}
		fmt.Printf("MEASURE %s %.4f allocations/record\n", x.name, f["allocations_per_record"])
	}
	return nil
}

func latency(ctx context.Context, b *bench) error {
	f, err := b.submit(ctx, "latency", "-records", "100000", "-rate", "10000")
	if err != nil {
		return err
	}
	for _, p := range []string{"p50", "p99", "p999"} {
		fmt.Printf("MEASURE latency_two_exchanges_%s %.3f ms\n", p, f[p+"_ms"])
	}
	return nil
}
