package stream

import (
	"errors"
	"math"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/timer"
)

// TimerFunction is a ProcessFunction or ConnectFunction that has timers.
type TimerFunction[K comparable, O any] interface {
	// OnTimer handles a timer that the function registered. States refer to the
	// key that was current then. It may emit, and register and delete timers.
	//
	// A timer of event time is fired once the watermark has reached its time,
	// those that are due together in the order of their times. When the input
	// has ended all are (the watermark is MaxWatermark then), so a function that
	// always registers another one never comes to an end. One of processing time
	// is fired when its time has come, and never before, but not any more when
	// the input has ended.
	OnTimer(ctx *Context[K], t Timer, out Collector[O]) error
}

// MaxWatermark is the watermark once no record follows.
const MaxWatermark int64 = math.MaxInt64

// TimeDomain is a kind of time.
type TimeDomain uint8

// The kinds of time.
const (
	// EventTime goes on with the watermark.
	EventTime TimeDomain = iota + 1
	// ProcessingTime is that of the hosts' clocks.
	ProcessingTime
)

// Timer is a timer that is due.
type Timer struct {
	// Time is what it was registered for, in milliseconds since the Unix epoch.
	Time   int64
	Domain TimeDomain
}

// Timers registers and deletes timers of the current key. There is one at most
// for each key, time and kind of time: registering it again changes nothing,
// and so does deleting one that does not exist. Timers are part of every
// checkpoint, and go with their key when the parallelism changes.
type Timers[K comparable] struct {
	all *timer.Timers[K] // nil if the function has no OnTimer
	ctx *Context[K]
	// open is set while there is a current key.
	open bool
}

var (
	errNoOnTimer = errors.New("timers: the function has no method OnTimer that would handle them")
	errNoKey     = errors.New("timers: there is no current key: they can be used while a record or timer is processed, not in Open and Finish")
)

func (t *Timers[K]) usable() error {
	switch {
	case t.all == nil:
		return errNoOnTimer
	case !t.open:
		return errNoKey
	}
	return nil
}

// RegisterEventTime registers a timer for a time in milliseconds. One for a
// time that the watermark has reached is fired with the next watermark.
func (t *Timers[K]) RegisterEventTime(time int64) error {
	if err := t.usable(); err != nil {
		return err
	}
	t.all.EventTime.Register(t.ctx.Key(), time)
	return nil
}

// DeleteEventTime deletes what RegisterEventTime registered.
func (t *Timers[K]) DeleteEventTime(time int64) error {
	if err := t.usable(); err != nil {
		return err
	}
	t.all.EventTime.Delete(t.ctx.Key(), time)
	return nil
}

// RegisterProcessingTime registers a timer for a time in milliseconds. One for
// a time that has passed is fired soon.
func (t *Timers[K]) RegisterProcessingTime(time int64) error {
	if err := t.usable(); err != nil {
		return err
	}
	t.all.ProcessingTime.Register(t.ctx.Key(), time)
	return nil
}

// DeleteProcessingTime deletes what RegisterProcessingTime registered.
func (t *Timers[K]) DeleteProcessingTime(time int64) error {
	if err := t.usable(); err != nil {
		return err
	}
	t.all.ProcessingTime.Delete(t.ctx.Key(), time)
	return nil
}

// useTimers gives a function its timers, if it has an OnTimer.
func useTimers[K comparable, O any](o *keyedOperator[K], fn any, out Collector[O]) error {
	f, ok := fn.(TimerFunction[K, O])
	if !ok {
		return nil
	}
	all, err := timer.New[K](o.ctx.place.KeyGroups, o.ctx.place.MaxParallelism)
	if err != nil {
		return o.fail(err)
	}
	o.ctx.timers.all = all
	o.onTimer = func(t Timer) error { return f.OnTimer(&o.ctx, t, out) }
	return nil
}

// FireEventTime implements operator.Timed.
func (o *keyedOperator[K]) FireEventTime(w int64, pace *operator.Pace) (done bool, err error) {
	if o.ctx.timers.all == nil {
		return true, nil
	}
	return o.fire(o.ctx.timers.all.EventTime, EventTime, w, pace)
}

// FireProcessingTime implements operator.Timed.
func (o *keyedOperator[K]) FireProcessingTime(now int64, pace *operator.Pace) (done bool, err error) {
	if o.ctx.timers.all == nil {
		return true, nil
	}
	return o.fire(o.ctx.timers.all.ProcessingTime, ProcessingTime, now, pace)
}

// NextProcessingTime implements operator.Timed.
func (o *keyedOperator[K]) NextProcessingTime() (int64, bool) {
	if o.ctx.timers.all == nil {
		return 0, false
	}
	return o.ctx.timers.all.ProcessingTime.Next()
}

// fire fires the timers up to a time. The timer is gone before the function
// sees it, so that it may register the same one again.
func (o *keyedOperator[K]) fire(q *timer.Queue[K], domain TimeDomain, until int64, pace *operator.Pace) (done bool, err error) {
	defer codec.Recover(&err)
	for {
		if next, ok := q.Next(); !ok || next > until {
			return true, nil
		}
		if pace.ShouldYield() {
			return false, nil
		}
		key, at, _ := q.PopDue(until)
		if err := o.ctx.keyed.SetCurrentKey(key); err != nil {
			return false, o.fail(err)
		}
		o.ctx.place.Time.Timestamp = NoTimestamp
		if domain == EventTime {
			o.ctx.place.Time.Timestamp = at
		}
		if err := o.onTimer(Timer{Time: at, Domain: domain}); err != nil {
			return false, o.fail(err)
		}
	}
}
