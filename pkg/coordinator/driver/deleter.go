package driver

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
)

const (
	// deletionsMax bounds what waits to be deleted. A checkpoint a second
	// makes one deletion a second, so this is a quarter of an hour of a store
	// that does not delete; what is dropped then is found by a later sweep.
	deletionsMax = 1024
	// deletionTriesMax bounds how often one deletion is tried: an outage of
	// some seconds is ridden out, a longer one must not stop those behind it.
	deletionTriesMax = 5
	// deletionTimeout bounds one try.
	deletionTimeout = time.Minute
)

// deletion is one thing to delete; what describes it in logs.
type deletion struct {
	what string
	// do deletes; more says that it stopped early and wants to be called again.
	do func(context.Context) (more bool, err error)
}

// deleter deletes files, best effort, on a goroutine of its own: nothing ever
// waits for a deletion.
type deleter struct {
	log *zap.Logger
	mu  struct {
		sync.Mutex
		queue []deletion
		// ending: no more is accepted; run returns when the queue is empty.
		ending bool
	}
	ready chan struct{}
}

func newDeleter(log *zap.Logger) *deleter {
	return &deleter{log: log, ready: make(chan struct{}, 1)}
}

// enqueue takes a deletion without waiting.
func (d *deleter) enqueue(item deletion) {
	d.mu.Lock()
	full := len(d.mu.queue) >= deletionsMax
	if !full && !d.mu.ending {
		d.mu.queue = append(d.mu.queue, item)
	}
	d.mu.Unlock()
	if full {
		d.log.Warn("too many deletions wait: leaving files to the next sweep", logfield.Reason(item.what))
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
	item = d.mu.queue[0]
	d.mu.queue = d.mu.queue[1:]
	return item, true, false
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
			continue
		case ctx.Err() != nil:
			return
		case try >= deletionTriesMax:
			d.log.Warn("files were not deleted: leaving them to the next sweep", logfield.Reason(item.what), logfield.Try(try), zap.Error(err))
			return
		}
		try++
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
