package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// interval sets the time between checkpoints of a job.
func interval(d string) []string { return []string{"-D", "execution.checkpointing.interval=" + d} }

// checkpoint is one that flinkctl lists.
type checkpoint struct {
	ID         uint64 `json:"id"`
	Kind       string `json:"kind"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	DurationMS int64  `json:"duration_ms"`
	Size       int64  `json:"size"`
}

// checkpoints lists those of a job that are complete, oldest first.
func (b *bench) checkpoints(ctx context.Context, job string) ([]checkpoint, error) {
	out, err := b.ctl(ctx, "checkpoints", job, "-o", "json")
	if err != nil {
		return nil, err
	}
	var listed struct{ Checkpoints []checkpoint }
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	var complete []checkpoint
	for _, c := range listed.Checkpoints {
		if c.Status == "COMPLETED" && c.Kind == "checkpoint" {
			complete = append([]checkpoint{c}, complete...)
		}
	}
	return complete, nil
}

// durations are those of checkpoints, in milliseconds.
func durations(list []checkpoint) []float64 {
	var all []float64
	for _, c := range list {
		all = append(all, float64(c.DurationMS))
	}
	return all
}

// jobOf is the ID that submit prints.
func jobOf(printed string) (string, error) {
	for line := range strings.Lines(printed) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "job-id: "); ok {
			return id, nil
		}
	}
	return "", fmt.Errorf("submit printed no job: %q", printed)
}

// countedRecords make a run of about ten seconds, and so about ten checkpoints.
const countedRecords = "60000000"

// withCheckpoints compares a keyed count over 1 M keys with a checkpoint every
// second with the same job without any. The state of all keys is written each time.
func withCheckpoints(ctx context.Context, b *bench) error {
	const name = "throughput_with_checkpoints_vs_without"
	var taken []checkpoint
	rate := func(every string) func() (float64, error) {
		return func() (float64, error) {
			result := filepath.Join(b.dir, "result")
			args := append(append([]string{"submit"}, interval(every)...), "-D", "state.backend.type=memory", b.job, "--",
				"-benchmark", "keyed-count", "-result", result, "-records", countedRecords, "-keys", "1000000")
			printed, err := b.ctl(ctx, args...)
			if err != nil {
				return 0, err
			}
			f, err := readFigures(result)
			if err != nil {
				return 0, err
			}
			job, err := jobOf(printed)
			if err != nil {
				return 0, err
			}
			taken, err = b.checkpoints(ctx, job)
			if every != "0" && len(taken) == 0 && err == nil {
				err = errors.New("no checkpoint was taken meanwhile")
			}
			return f["records_per_second"], err
		}
	}
	// The job of a pair is measured last.
	if err := b.ratio(name, "records/s", rate("1s"), rate("0")); err != nil {
		return err
	}
	var size int64
	for _, c := range taken {
		size = max(size, c.Size)
	}
	fmt.Printf("MEASURE %s_checkpoints %d of the last run\n", name, len(taken))
	fmt.Printf("MEASURE %s_duration %.0f ms\n", name, median(durations(taken)))
	fmt.Printf("MEASURE %s_size %d bytes\n", name, size)
	return nil
}

const (
	// pressedDelay of the sink for each record makes an aligned checkpoint wait
	// for what is in the channels, some hundred records: about a minute.
	pressedDelay = 150 * time.Millisecond
	// alignedTimeout bounds the wait for the first aligned checkpoint, which
	// takes about a minute.
	alignedTimeout = 3 * time.Minute
	// unalignedCount is how many unaligned ones are measured.
	unalignedCount = 3
)

// unalignedVsAligned compares how long checkpoints take under back-pressure
// when barriers overtake records, and when they do not. One job each: the
// durations are in the list of checkpoints.
func unalignedVsAligned(ctx context.Context, b *bench) error {
	const name = "unaligned_vs_aligned_duration"
	aligned, err := b.underPressure(ctx, 1, "-D", "execution.checkpointing.unaligned.enabled=false")
	if err != nil {
		return fmt.Errorf("aligned: %w", err)
	}
	unaligned, err := b.underPressure(ctx, unalignedCount, "-D", "execution.checkpointing.unaligned.enabled=true")
	if err != nil {
		return fmt.Errorf("unaligned: %w", err)
	}
	base, job := median(durations(aligned)), median(durations(unaligned))
	fmt.Printf("RATIO %s %.4f\n", name, job/base)
	fmt.Printf("BASE %s %.0f ms\n", name, base)
	fmt.Printf("MEASURE %s_job %.0f ms\n", name, job)
	return nil
}

// underPressure runs a job with a slow sink until it has completed n
// checkpoints, and cancels it. The first comes when its channels are full.
func (b *bench) underPressure(ctx context.Context, n int, flags ...string) (taken []checkpoint, err error) {
	args := append(append([]string{"submit", "--detached", "--parallelism", "2"}, interval("5s")...), flags...)
	printed, err := b.ctl(ctx, append(args, b.job, "--", "-benchmark", "pressed", "-delay", pressedDelay.String(), "-records", "1000000000")...)
	if err != nil {
		return nil, err
	}
	job, err := jobOf(printed)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, cancelErr := b.ctl(context.WithoutCancel(ctx), "cancel", job)
		err = errors.Join(err, cancelErr)
	}()
	waiting, stop := context.WithTimeout(ctx, alignedTimeout)
	defer stop()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		if taken, err = b.checkpoints(waiting, job); err != nil {
			return nil, err
		}
		if len(taken) >= n {
			break
		}
		select {
		case <-ticker.C:
		case <-waiting.Done():
			return nil, fmt.Errorf("%d of %d checkpoints were completed within %s: %w", len(taken), n, alignedTimeout, waiting.Err())
		}
	}
	for _, c := range taken {
		fmt.Fprintf(os.Stderr, "checkpoint %d under back-pressure (%s): %d ms, %s bytes\n", c.ID, flags[len(flags)-1], c.DurationMS, strconv.FormatInt(c.Size, 10))
	}
	return taken, nil
}
