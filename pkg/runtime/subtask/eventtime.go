package subtask

import (
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/watermark"
	"github.com/weirstream/weir/pkg/snapshot"
)

// watermarkInterval is how many milliseconds lie between two watermarks of a
// generator. It is Flink's default of pipeline.auto-watermark-interval: the
// frames that it costs are few, and windows close soon enough for people.
const watermarkInterval = 200

// eventTime is how far the subtask and each of its operators have come in
// event time. An operator first fires what is due at its watermark, which may
// take several steps since the output may run out of credit on the way; then
// the watermark goes to what is behind it, in the chain and outside. Meanwhile
// the subtask takes no other input, but snapshots: one in the middle has the
// new watermark and the timers that are still to be fired, which a restore
// fires first.
type eventTime struct {
	s     *Subtask
	valve *watermark.Valve
	// passed is the watermark that each operator has given to what is behind
	// it, outside the one without the last, which is not sent out of a loop, reached
	// the one whose timers it has fired, told the status that was sent on.
	passed, outside, reached []int64
	told                     []bool
	// firing says that some operator may have a watermark that it has not reached.
	firing bool
	// stamped says that records of this job have timestamps.
	stamped    bool
	generators bool
	timed      bool
	nextTick   int64
	// disturbed says that the subtask did something, or could not do it, since
	// the last tick: it was not idle.
	disturbed bool
}

func (e *eventTime) init(s *Subtask, channels int) {
	e.s = s
	e.valve = watermark.NewValve(channels)
	for ch := range s.in.channels {
		if s.in.channels[ch].kind == align.Feedback {
			e.valve.End(ch) // what comes round is behind what went round
		}
	}
	n := len(s.chain.Operators)
	e.passed, e.outside, e.reached, e.told = make([]int64, n), make([]int64, n), make([]int64, n), make([]bool, n)
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		e.passed[i], e.outside[i], e.reached[i] = watermark.None, watermark.None, watermark.None
		e.timed = e.timed || op.Instance.Timed != nil
		if op.Instance.Generator != nil {
			e.generators = true
			op.Context.LeaveIdle = e.tellActive
		}
	}
	for _, code := range s.cfg.Program.Edges {
		e.stamped = e.stamped || code.NewStampedInput != nil
	}
}

// begin follows the restore.
func (e *eventTime) begin() {
	for i := range e.s.chain.Operators {
		if e.s.chain.Operators[i].Context.Watermark != watermark.None {
			e.firing = true
		}
	}
}

// Advance tells the subtask what time it is, in milliseconds. A clock that
// goes back stands still. Whoever steps the subtask calls it before Step.
func (s *Subtask) Advance(now int64) {
	t := s.chain.Time
	if s.phase != running || now <= t.Now {
		return
	}
	t.Now = now
	s.time.tick()
	s.advanceFlights()
}

// NextAdvance is when Advance and Step must be called although nothing has
// arrived, if ever.
func (s *Subtask) NextAdvance() (int64, bool) {
	if s.phase != running {
		return 0, false
	}
	next, ok := s.nextOvertaking()
	if s.ending || s.wasEnded {
		return next, ok
	}
	if s.time.generators && (!ok || s.time.nextTick < next) {
		next, ok = s.time.nextTick, true
	}
	if s.pace.Blocked() {
		return next, ok // timers wait for credit, like all that emits
	}
	for i := range s.chain.Operators {
		if timed := s.chain.Operators[i].Instance.Timed; timed != nil {
			if at, has := timed.NextProcessingTime(); has && (!ok || at < next) {
				next, ok = at, true
			}
		}
	}
	return next, ok
}

// tick lets the generators make their watermarks.
func (e *eventTime) tick() {
	s := e.s
	if !e.generators || s.chain.Time.Now < e.nextTick || s.ending {
		return
	}
	e.nextTick = s.chain.Time.Now + watermarkInterval
	if s.paused {
		// Nothing may happen after the barrier of a savepoint that ends the job.
		e.disturbed = true
		return
	}
	// I11: neither what waits for credit nor what is held back by an alignment
	// is idle.
	quiet := !e.disturbed && !s.pace.Blocked() && !s.in.isHeldBack() && !(s.isSource && s.chain.Source.HasBatch())
	e.disturbed = false
	for i := range s.chain.Operators {
		g := s.chain.Operators[i].Instance.Generator
		if g == nil {
			continue
		}
		g.Tick(quiet)
		if g.Watermark() > e.passed[i] || g.IsIdle() != e.told[i] {
			e.pass(i, g.Watermark())
			e.firing = true
		}
	}
}

// reachInput follows a change of the input channels' watermarks.
func (e *eventTime) reachInput() {
	w, idle := e.valve.Current()
	if !idle {
		e.tellActive()
	}
	e.reach(0, w)
	e.firing = true
}

// reach raises the watermark of an operator's input.
func (e *eventTime) reach(op int, w int64) {
	ctx := e.s.chain.Operators[op].Context
	if w > ctx.Watermark {
		ctx.Watermark = w
		e.firing = true
	}
}

// stepTime fires what is due, and reports whether there was something to do.
func (s *Subtask) stepTime() bool {
	e := &s.time
	did := false
	if e.firing {
		did = true
		if !e.fireEventTime() {
			return true
		}
		e.firing = false
		e.tellIdle()
		if s.ending && !s.endOfData {
			s.finishData()
			return true
		}
	}
	// After the end of data nothing may be emitted any more.
	if e.timed && !s.ending && !s.wasEnded {
		did = e.fireProcessingTime() || did
	}
	return did
}

// fireEventTime brings every operator to its watermark, from the head to the
// tails, and reports whether all got there.
func (e *eventTime) fireEventTime() bool {
	s := e.s
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		w := op.Context.Watermark
		// Behind the last watermark, what goes round a loop may register timers
		// that no other watermark would fire.
		if w == e.reached[i] && (w != watermark.Max || op.Instance.Timed == nil) {
			continue
		}
		// What ended before the restored checkpoint has emitted all it will.
		if op.Instance.Timed != nil && !s.wasEnded {
			done, err := op.Instance.Timed.FireEventTime(w, &s.pace)
			if err != nil {
				s.failed(err, op.Context.Operator)
				return false
			}
			if !done {
				return false
			}
		}
		e.reached[i] = w
		// A generator takes from its input only that it has ended.
		if op.Instance.Generator == nil || w == watermark.Max {
			e.pass(i, w)
		}
	}
	return true
}

// isAtEnd reports whether event time has come to its end for all operators: no
// timer of it is left, and no channel brings one more but for what goes round.
func (e *eventTime) isAtEnd() bool {
	return !e.firing && e.valve.IsAtEnd() && !slices.ContainsFunc(e.reached, func(w int64) bool { return w != watermark.Max })
}

// fireProcessingTime fires what is due by the clock.
func (e *eventTime) fireProcessingTime() bool {
	s := e.s
	did := false
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		if op.Instance.Timed == nil {
			continue
		}
		at, ok := op.Instance.Timed.NextProcessingTime()
		if !ok || at > s.chain.Time.Now {
			continue
		}
		did = true
		done, err := op.Instance.Timed.FireProcessingTime(s.chain.Time.Now, &s.pace)
		if err != nil {
			s.failed(err, op.Context.Operator)
		}
		if err != nil || !done {
			return true
		}
	}
	return did
}

// pass gives an operator's watermark to what is behind it.
func (e *eventTime) pass(op int, w int64) {
	if w <= e.passed[op] {
		return
	}
	e.passed[op] = w
	for i := op + 1; i < len(e.s.chain.Operators); i++ {
		if e.s.chain.Operators[i].Upstream == op {
			e.reach(i, w)
		}
	}
	// The end of data, which follows, says the same as the last watermark; but
	// not soon where records may still go round a loop. Behind the loop it has
	// not come before they have left.
	f := element.Frame{Kind: element.WatermarkKind, Watermark: w}
	switch {
	case w != watermark.Max:
		e.outside[op] = w
		e.emit(op, f)
	case !e.s.ending:
		e.emitTo(op, f, func(n int) bool { return e.s.loop.inner[n] })
	}
}

// sentOn is the watermark that an operator has sent on an output.
func (e *eventTime) sentOn(op, output int) int64 {
	if e.s.loop.inner[output] {
		return e.passed[op]
	}
	return e.outside[op]
}

// emit puts a control element behind what an operator has collected.
func (e *eventTime) emit(op int, f element.Frame) {
	e.emitTo(op, f, func(int) bool { return true })
}

// emitTo is emit on some of the operator's outputs.
func (e *eventTime) emitTo(op int, f element.Frame, isTo func(output int) bool) {
	for _, n := range e.s.chain.Operators[op].Writers {
		if !isTo(n) {
			continue
		}
		for ch := range e.s.out.edges[n] {
			e.s.chain.Writers[n].Cut(ch)
			e.s.out.Emit(n, ch, f)
		}
	}
}

// isIdle reports whether what is behind an operator should not wait for it.
func (e *eventTime) isIdle(op int) bool {
	o := &e.s.chain.Operators[op]
	switch {
	case o.Instance.Generator != nil:
		return o.Instance.Generator.IsIdle()
	case o.Upstream >= 0:
		return e.isIdle(o.Upstream)
	}
	_, idle := e.valve.Current()
	return idle
}

// tellActive tells everybody behind operators that are not idle any more, in
// front of the records that follow.
func (e *eventTime) tellActive() {
	for op := range e.told {
		if e.told[op] && !e.isIdle(op) {
			e.told[op] = false
			e.emit(op, element.Frame{Kind: element.StatusKind})
		}
	}
}

// tellIdle does the opposite, behind all that was emitted.
func (e *eventTime) tellIdle() {
	for op := range e.told {
		if !e.told[op] && e.isIdle(op) {
			e.told[op] = true
			e.emit(op, element.Frame{Kind: element.StatusKind, Idle: true})
		}
	}
}

// stored makes the elements of snapshot.WatermarkList. Only operators with state of
// their own store theirs: others have the one from their input again before
// the first record.
func (e *eventTime) stored() [][]byte {
	out := make([][]byte, len(e.s.chain.Operators))
	for i := range e.s.chain.Operators {
		if op := &e.s.chain.Operators[i]; e.stamped && op.Instance.Timed != nil {
			out[i] = operator.AppendTime(nil, op.Context.KeyGroups, op.Context.Watermark)
		}
	}
	return out
}

// restore gives an operator the lowest watermark of those whose key groups it
// takes over. From there it does not go back, while the watermarks of its
// channels begin before any: so it rises when all of them have passed it.
func (e *eventTime) restore(op *operator.ChainOperator, r *operator.Restored) error {
	list := r.Lists[snapshot.WatermarkList]
	if op.Instance.Timed == nil || len(list) == 0 {
		return nil
	}
	w, err := operator.LowestTime(list, op.Context.KeyGroups)
	if err != nil {
		return fmt.Errorf("watermark: %w", err)
	}
	op.Context.Watermark = w
	return nil
}
