package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

const (
	// deletionsMax bounds what waits to be deleted. A checkpoint a second
	// makes one deletion a second, so this is a quarter of an hour of a store
	// that does not delete; what is dropped then is found by a later sweep.
	deletionsMax = 1024
	// deletionHandlesMax bounds the handles that wait, of all deletions: some 30 MiB.
	// They are many checkpoints that were given up, of thousands of subtasks.
	deletionHandlesMax = 1 << 18
	// deletionTriesMax bounds how often in a row one deletion is tried without
	// getting on: an outage of some seconds is ridden out, a longer one must not
	// stop those behind it.
	deletionTriesMax = 5
	// deletionTimeout bounds one try. One that got on until then is no failure.
	deletionTimeout = time.Minute
)

// deletion is one thing to delete; what describes it in logs.
type deletion struct {
	what string
	// do deletes; more says that it stopped early and wants to be called again.
	do func(context.Context) (more bool, err error)
}

// filesOf are files that are known by their handles, relative to one base. One
// that waits takes more of the same base: each late acknowledgement of a
// checkpoint brings some, and thousands of them must not push out what else waits.
type filesOf struct {
	base    string
	handles []snapshot.StateHandle
}

func (f *filesOf) what() string { return fmt.Sprintf("%d files below %s", len(f.handles), f.base) }

// queued is a deletion that waits.
type queued struct {
	deletion
	files *filesOf // or nil
}

// deleter deletes files, best effort, on a goroutine of its own: nothing ever
// waits for a deletion.
type deleter struct {
	log *zap.Logger
	// discard is CheckpointStore.DiscardHandles.
	discard func(ctx context.Context, base string, handles []snapshot.StateHandle) (left []snapshot.StateHandle, err error)
	mu      struct {
		sync.Mutex
		queue   []queued
		handles int // of all in queue
		// ending: no more is accepted; run returns when the queue is empty.
		ending bool
	}
	ready chan struct{}
}

func newDeleter(
	discard func(context.Context, string, []snapshot.StateHandle) ([]snapshot.StateHandle, error), log *zap.Logger,
) *deleter {
	return &deleter{log: log, discard: discard, ready: make(chan struct{}, 1)}
}

// enqueue takes a deletion without waiting.
func (d *deleter) enqueue(item deletion) {
	d.add(item.what, func() bool {
		if len(d.mu.queue) >= deletionsMax {
			return false
		}
		d.mu.queue = append(d.mu.queue, queued{deletion: item})
		return true
	})
}

// enqueueFiles takes files to delete, without waiting.
func (d *deleter) enqueueFiles(files filesOf) {
	d.add(files.what(), func() bool {
		if d.mu.handles >= deletionHandlesMax {
			return false
		}
		i := slices.IndexFunc(d.mu.queue, func(q queued) bool { return q.files != nil && q.files.base == files.base })
		switch {
		case i >= 0:
			waiting := d.mu.queue[i].files
			waiting.handles = append(waiting.handles, files.handles...)
		case len(d.mu.queue) >= deletionsMax:
			return false
		default:
			// The caller's own slice is not appended to.
			files.handles = slices.Clip(files.handles)
			d.mu.queue = append(d.mu.queue, queued{files: &files})
		}
		d.mu.handles += len(files.handles)
		return true
	})
}

// add calls put, which says whether there was room.
func (d *deleter) add(what string, put func() bool) {
	d.mu.Lock()
	full := !d.mu.ending && !put()
	d.mu.Unlock()
	if full {
		d.log.Warn("too many deletions wait: leaving files to the next sweep", logfield.Reason(what))
		return
	}
	d.signal()
}

// finish lets run return once what is queued has been tried.
func (d *deleter) finish() {
	d.mu.Lock()
	d.mu.ending = true
	d.mu.Unlock()
	d.signal()
}

func (d *deleter) signal() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// next gives the next deletion; ended says that there will be none any more.
func (d *deleter) next() (item deletion, ok, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.queue) == 0 {
		return deletion{}, false, d.mu.ending
	}
	first := d.mu.queue[0]
	d.mu.queue[0] = queued{}
	d.mu.queue = d.mu.queue[1:]
	if first.files == nil {
		return first.deletion, true, false
	}
	d.mu.handles -= len(first.files.handles)
	return d.deletionOf(*first.files), true, false
}

// deletionOf deletes files, and when it is repeated those that are left.
func (d *deleter) deletionOf(files filesOf) deletion {
	return deletion{what: files.what(), do: func(ctx context.Context) (bool, error) {
		var err error
		files.handles, err = d.discard(ctx, files.base, files.handles)
		return false, err
	}}
}

// run deletes until ctx ends, or until all is done after finish.
func (d *deleter) run(ctx context.Context) {
	for {
		item, ok, ended := d.next()
		switch {
		case ok:
			d.delete(ctx, item)
		case ended:
			return
		default:
			select {
			case <-d.ready:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (d *deleter) delete(ctx context.Context, item deletion) {
	var pause backoff
	for try := 1; ; {
		more, err := d.try(ctx, item)
		switch {
		case err == nil && !more:
			return
		case err == nil:
			// Progress: only the store's failures count as tries.
			try, pause = 1, backoff{}
			continue
		case ctx.Err() != nil:
			return
		case checkpointstore.GotOn(err):
			// There are fewer files now, however long it takes.
			try, pause = 1, backoff{}
		case try >= deletionTriesMax:
			d.log.Warn("files were not deleted: leaving them to the next sweep", logfield.Reason(item.what), logfield.Try(try), zap.Error(err))
			return
		default:
			try++
		}
		if !pause.wait(ctx) {
			return
		}
	}
}

func (d *deleter) try(ctx context.Context, item deletion) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	return item.do(ctx)
}
