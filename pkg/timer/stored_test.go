package timer_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/timer"
)

var writeStored = flag.Bool("write", false, "write testdata/timers.json if it is missing: once per format, never again")

const storedTimers = "testdata/timers.json"

// The timers of an earlier version restore into this one, at any parallelism.
func TestStoredTimersRestore(t *testing.T) {
	if _, err := os.Stat(storedTimers); *writeStored && os.IsNotExist(err) {
		var parts []statebackend.RestoredPart
		all := newSubtasks(t, 2, nil)
		for key := range uint64(40) {
			own := all[all.owner(t, key)]
			own.EventTime.Register(key, int64(key)*1000-20_000)
			own.EventTime.Register(key, 1<<40)
			own.ProcessingTime.Register(key, 1_800_000_000_000+int64(key))
		}
		for index, s := range all {
			parts = append(parts, write(t, s.Freeze(), keygroup.RangeOf(index, 2, maxParallelism)))
		}
		content, err := json.Marshal(parts)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(storedTimers, append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(storedTimers)
	if err != nil {
		t.Fatal(err)
	}
	var parts []statebackend.RestoredPart
	if err := json.Unmarshal(content, &parts); err != nil {
		t.Fatal(err)
	}
	for parallelism := 1; parallelism <= 3; parallelism++ {
		event, processing := map[want]bool{}, map[want]bool{}
		for _, s := range newSubtasks(t, parallelism, parts) {
			drain(s.EventTime, event)
			drain(s.ProcessingTime, processing)
		}
		for key := range uint64(40) {
			if !event[want{int64(key)*1000 - 20_000, key}] || !event[want{1 << 40, key}] || !processing[want{1_800_000_000_000 + int64(key), key}] {
				t.Errorf("parallelism %d: timers of key %d are missing", parallelism, key)
			}
		}
		if len(event) != 80 || len(processing) != 40 {
			t.Errorf("parallelism %d: %d and %d timers", parallelism, len(event), len(processing))
		}
	}
}

// drain moves all timers of a queue to a set.
func drain(q *timer.Queue[uint64], to map[want]bool) {
	for key, at, due := q.PopDue(1 << 62); due; key, at, due = q.PopDue(1 << 62) {
		to[want{at, key}] = true
	}
}
