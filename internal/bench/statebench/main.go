package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
)

var (
	benchmark = flag.String("benchmark", "", "`NAME` of the benchmark")
	keys      = flag.Int("keys", 1_000_000, "hold `N` keys")
	updates   = flag.Int("updates", 20_000_000, "update hot keys `N` times")
	result    = flag.String("result", "", "append what was measured to `FILE`")
	dir       = flag.String("dir", "", "a `DIRECTORY` for files, removed by the caller")
	profile   = flag.String("profile", "", "write a CPU profile to `FILE`")
)

// benchmarks by name.
var benchmarks = map[string]func() error{
	"value-rmw":       valueRMW,
	"map-rmw":         mapRMW,
	"freeze":          freeze,
	"during-snapshot": duringSnapshot,
	"hot-memory":      hotInMemory,
	"hot-pebble":      hotInPebble,
	"freeze-pebble":   pebbleFreeze,
	"cold-pebble":     coldInPebble,
	"cold-raw":        coldInRaw,
	"incremental":     incremental,
	"restore":         restore,
}

func main() {
	flag.Parse()
	run, ok := benchmarks[*benchmark]
	if !ok {
		names := make([]string, 0, len(benchmarks))
		for name := range benchmarks {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "statebench: there is no benchmark %q: give one of %s\n", *benchmark, strings.Join(names, ", "))
		os.Exit(2)
	}
	if err := profiled(run); err != nil {
		fmt.Fprintf(os.Stderr, "statebench: %s: %v\n", *benchmark, err)
		os.Exit(1)
	}
}

// profiled runs a benchmark under the profiler, if one was asked for.
func profiled(run func() error) error {
	if *profile == "" {
		return run()
	}
	f, err := os.Create(*profile)
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(fmt.Errorf("start profile: %w", err), f.Close())
	}
	err = run()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// report appends a line to the result file.
func report(format string, args ...any) error {
	f, err := os.OpenFile(*result, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("report result: %w", err)
	}
	if _, err := fmt.Fprintf(f, format+"\n", args...); err != nil {
		return fmt.Errorf("report result: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("report result: %w", err)
	}
	return nil
}

// keyOf spreads the numbers over all of uint64, one to one.
func keyOf(i int) uint64 { return uint64(i)*0x9e3779b97f4a7c15 + 1 }

// uniform draws n keys of the first of them, with repetition.
func uniform(n, of int) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	drawn := make([]uint64, n)
	for i := range drawn {
		drawn[i] = keyOf(r.IntN(of))
	}
	return drawn
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
