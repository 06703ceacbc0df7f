package pebble

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// governEvery is how often the heap is looked at. Between two looks it cannot
// grow by much more than the generation of a checkpoint.
const governEvery = 200 * time.Millisecond

// GovernGarbage keeps a process, of which a backend with memoryBytes takes a
// part, from holding as much garbage again as it holds live data: it sets
// debug.SetMemoryLimit by what is live. Collecting more often costs little, as
// neither blocks nor flat values have pointers to follow. One goroutine does
// it, which stop ends and waits for.
//
// A process whose environment sets GOMEMLIMIT is left alone. The executor's
// process calls it once; in a process with several backends it is nobody's to
// call.
func GovernGarbage(memoryBytes int64) (stop func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		before := debug.SetMemoryLimit(memoryLimit(memoryBytes, 0))
		defer debug.SetMemoryLimit(before)
		tick := time.NewTicker(governEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				metrics.Read(live)
				debug.SetMemoryLimit(memoryLimit(memoryBytes, int64(live[0].Value.Uint64())))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		ended.Wait()
	})
}

// memoryLimit is the memory that the Go runtime may take with so much live on
// the heap: a tenth more than the backend's. Of that, three quarters of the
// backend's memory are room for what is live of it. What is live beyond is the
// program's, which may have as much garbage again, as in any Go process. The
// limit is never near to what is live, or the collector would run all the time.
func memoryLimit(memory, live int64) int64 {
	limit := memory/10*11 + 2*max(0, live-memory/4*3)
	return max(limit, live/4*5+runtimeBytes)
}

// runtimeBytes are more than what the runtime of a process without state takes
// beside its heap. It matters with very little memory for the backend.
const runtimeBytes = 32 << 20
