package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/weirstream/weir/pkg/stream"
)

var (
	benchmark = flag.String("benchmark", "keyed-count", "keyed-count, exchange, exchange-string, latency or pressed; baselines: map, raw-server, raw-client")
	records   = flag.Uint64("records", 20_000_000, "process `N` records")
	keys      = flag.Uint64("keys", 1_000_000, "over `N` keys (keyed-count, map)")
	rate      = flag.Int("rate", 0, "emit `N` records a second (latency)")
	delay     = flag.Duration("delay", 0, "take so long for each record in the sink (pressed)")
	result    = flag.String("result", "", "append what was measured to `FILE`")
	profile   = flag.String("profile", "", "write a CPU profile of each executor's first seconds to `FILE`.<pid>")
	address   = flag.String("address", "", "`HOST:PORT` of the raw server (raw-client)")
)

func main() {
	flag.Parse()
	switch *benchmark {
	case "map":
		exit(countInMap())
	case "raw-server":
		exit(serveRaw())
	case "raw-client":
		exit(readRaw())
	}
	if *profile != "" && os.Getenv(stream.ModeVariable) == stream.ExecutorMode {
		if err := profileFor(*profile, profileLength); err != nil {
			exit(err)
		}
	}
	stream.Main("benchmark "+*benchmark, func(env *stream.Env) error {
		switch *benchmark {
		case "keyed-count":
			return keyedCount(env)
		case "exchange":
			return exchange(env)
		case "exchange-string":
			return exchangeString(env)
		case "latency":
			return latency(env)
		case "pressed":
			return pressed(env)
		}
		return fmt.Errorf("there is no benchmark %q", *benchmark)
	})
}

// profileLength covers the steady part of every benchmark.
const profileLength = 4 * time.Second

// profileFor profiles this process from now on for that long.
func profileFor(file string, length time.Duration) error {
	f, err := os.Create(fmt.Sprintf("%s.%d", file, os.Getpid()))
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(fmt.Errorf("start profile: %w", err), f.Close())
	}
	time.AfterFunc(length, func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "benchjob: write profile:", err)
		}
	})
	return nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchjob:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// report appends lines to the result file.
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
