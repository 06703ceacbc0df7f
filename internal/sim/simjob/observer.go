package simjob

import (
	"fmt"

	weirids "github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// Observer is told what happens inside the job. Any of its functions may be
// nil. All are called by the goroutine that steps the job.
type Observer struct {
	// Record comes before every record that an operator takes or a source emits.
	Record func()
	// Fails is asked before and after everything that talks to the outside: an
	// error makes it fail, before it did anything or after it was done.
	Fails func(at Moment) error
	// Opened: a reader was opened on a split at a position.
	Opened func(by *operator.Context, split int, position uint64)
	// Restored: an operator with state has restored this in one subtask, which
	// may be nothing.
	Restored func(by *operator.Context, live *Stored)
	// Frozen: a snapshot of an operator with state was frozen.
	Frozen func(by *operator.Context, id weirids.CheckpointID)
	// Expires is told what a state with time-to-live gave for a key, and when
	// it was written. It gives what is to be noted when it is written now.
	Expires func(key uint64, was Written, id uint64, found bool) Written
	// Fired: a timer fired.
	Fired func(eventTime bool)
	// Broken: a rule was broken that the job itself watches.
	Broken func(rule, message string)
	// Committed: a transaction became visible. It comes once for each.
	Committed func(by *operator.Context, name string, records []Count)
	// Aborted: a transaction is gone for good.
	Aborted func(by *operator.Context, name string)
}

// Moment is a moment at which the job talks to the outside.
type Moment int

// The moments.
const (
	// Fetching: a source is about to fetch.
	Fetching Moment = iota
	// Persisting and Persisted: a transaction is about to become durable, or has.
	Persisting
	Persisted
	// Committing and HasCommitted: a transaction is about to become visible, or has.
	Committing
	HasCommitted
	// Aborting: a transaction is about to go away.
	Aborting
)

func (o *Observer) fails(at Moment) error {
	if o == nil || o.Fails == nil {
		return nil
	}
	return o.Fails(at)
}

func (o *Observer) record() {
	if o != nil && o.Record != nil {
		o.Record()
	}
}

func (o *Observer) opened(by *operator.Context, split int, position uint64) {
	if o != nil && o.Opened != nil {
		o.Opened(by, split, position)
	}
}

func (o *Observer) committed(by *operator.Context, name string, records []Count) {
	if o != nil && o.Committed != nil {
		o.Committed(by, name, records)
	}
}

func (o *Observer) aborted(by *operator.Context, name string) {
	if o != nil && o.Aborted != nil {
		o.Aborted(by, name)
	}
}

func (o *Observer) frozen(by *operator.Context, id weirids.CheckpointID) {
	if o != nil && o.Frozen != nil {
		o.Frozen(by, id)
	}
}

func (o *Observer) fired(eventTime bool) {
	if o != nil && o.Fired != nil {
		o.Fired(eventTime)
	}
}

func (o *Observer) broken(rule, format string, args ...any) {
	if o != nil && o.Broken != nil {
		o.Broken(rule, fmt.Sprintf(format, args...))
	}
}
