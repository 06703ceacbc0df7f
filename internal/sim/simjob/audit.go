package simjob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/timer"
)

// keys is the encoding of the job's keys.
var keys = func() *keygroup.Encoding[uint64] {
	e, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		panic(err)
	}
	return e
}()

// opened is state outside a subtask: what a checkpoint holds is read by
// restoring it into one.
type opened struct {
	*state.Keyed[uint64]
	*state.Operator
}

// audit reads the stored state of one operator, of all key groups in parts.
// Its lines are those of the whole when the lists are those of all subtasks.
func (o Options) audit(uid ids, parts []statebackend.RestoredPart, lists map[string][][]byte, into *Stored) (err error) {
	if o.Flow != nil {
		node, _ := o.Flow.nodeOf(uid)
		return o.auditFlow(node, parts, lists, into)
	}
	keyed, err := o.newKeyed(uid)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keyed.Backend().Close()) }()
	ctx := opened{keyed, state.NewOperator(uid, 0)}
	waiting, rest := timer.Split(parts)
	timers, err := timer.New[uint64](keygroup.Range{Last: keygroup.Group(o.MaxParallelism - 1)}, o.MaxParallelism)
	if err != nil {
		return err
	}
	restore := func() error {
		if err := keyed.Backend().Restore(rest); err != nil {
			return err
		}
		if err := timers.Restore(waiting); err != nil {
			return err
		}
		return ctx.Operator.Restore(lists)
	}
	if uid == Ruled {
		var s rulerStates
		if err := s.open(ctx); err != nil {
			return err
		}
		if err := restore(); err != nil {
			return err
		}
		return errors.Join(o.auditRules(&s, into), o.eachKey(keyed, func(key uint64) error {
			n, found, err := s.n.Get()
			if found {
				into.Lines[line(Ruled, key, "n")] = fmt.Sprint(n)
			}
			return err
		}))
	}
	var s counterStates
	if o.Stateful {
		if err := s.open(ctx, o); err != nil {
			return err
		}
	} else if s.n, err = state.NewValue[uint64](ctx, "n"); err != nil {
		return err
	}
	if err := restore(); err != nil {
		return err
	}
	if err := o.eachKey(keyed, func(key uint64) error { return o.auditKey(key, &s, into) }); err != nil || !o.Stateful {
		return err
	}
	into.Parts = append(into.Parts, s.parts.Get()...)
	for _, g := range s.groups.Get() {
		into.Groups[g.Group] = max(into.Groups[g.Group], g.N)
	}
	return o.auditTimers(timers, into)
}

// newKeyed makes keyed state that no subtask has.
func (o Options) newKeyed(uid ids) (*state.Keyed[uint64], error) {
	return state.NewKeyed[uint64](state.Options{
		Operator: uid, Range: keygroup.Range{Last: keygroup.Group(o.MaxParallelism - 1)}, MaxParallelism: o.MaxParallelism, Backend: memory.New(),
		// Far in the past, so that nothing has expired by it.
		Now: func() time.Time { return time.UnixMilli(0) },
	})
}

func (o Options) eachKey(keyed *state.Keyed[uint64], do func(key uint64) error) error {
	for key := range o.Keys {
		if err := keyed.SetCurrentKey(key); err != nil {
			return err
		}
		if err := do(key); err != nil {
			return fmt.Errorf("key %d: %w", key, err)
		}
	}
	return nil
}

func (o Options) auditKey(key uint64, s *counterStates, into *Stored) error {
	n, found, err := s.n.Get()
	if err != nil || !found {
		return err
	}
	l := into.Lines
	l[line(Counts, key, "n")] = fmt.Sprint(n)
	if !o.Stateful {
		return nil
	}
	largest, err := s.largest.Get()
	if err != nil {
		return err
	}
	slices.Sort(largest)
	l[line(Counts, key, "largest")] = fmt.Sprint(largest)
	err = s.since.Each(func(split, n uint64) error {
		l[line(Counts, key, fmt.Sprintf("since/%d", split))] = fmt.Sprint(n)
		return nil
	})
	if err != nil {
		return err
	}
	sum, _, err := s.sum.Get()
	if err != nil {
		return err
	}
	l[line(Counts, key, "sum")] = fmt.Sprint(sum)
	average, _, err := s.mean.Get()
	if err != nil {
		return err
	}
	l[line(Counts, key, "mean")] = fmt.Sprint(average)
	fired, found, err := s.fired.Get()
	if err != nil {
		return err
	}
	if found {
		l["~"+line(Counts, key, "fired")] = fmt.Sprint(fired)
	}
	written, _, err := s.written.Get()
	if err != nil {
		return err
	}
	l["~"+line(Counts, key, "written")] = fmt.Sprint(written)
	return s.due.Each(func(at int64, all []uint64) error {
		l["~"+line(Counts, key, fmt.Sprintf("due/%d", at))] = fmt.Sprint(all)
		for _, id := range all {
			into.Waiting = append(into.Waiting, Count{Key: processingTimer | key, N: id})
		}
		return nil
	})
}

// auditTimers reads the timers. Each of processing time is in state, too.
func (o Options) auditTimers(timers *timer.Timers[uint64], into *Stored) error {
	for {
		key, at, ok := timers.EventTime.PopDue(1 << 62)
		if !ok {
			break
		}
		into.Lines["~"+line(Counts, key, fmt.Sprintf("timer/%d", at))] = "waits"
		into.Waiting = append(into.Waiting, Count{Key: eventTimer | key, N: uint64(at)})
	}
	due := 0
	for name := range into.Lines {
		if strings.HasPrefix(name, "~"+Counts+"/") && strings.Contains(name, "/due/") {
			due++
		}
	}
	for ; ; due-- {
		key, at, ok := timers.ProcessingTime.PopDue(1 << 62)
		if !ok {
			break
		}
		if name := "~" + line(Counts, key, fmt.Sprintf("due/%d", at)); into.Lines[name] == "" {
			return fmt.Errorf("processing-time timer %d of key %d is stored, of which the states know nothing", at, key)
		}
	}
	if due != 0 {
		return fmt.Errorf("%d processing-time timers are missing", due)
	}
	return nil
}

func (o Options) auditRules(s *rulerStates, into *Stored) error {
	return s.rules.Each(func(k, n uint64) error {
		into.Lines[fmt.Sprintf("%s/rule/%d", Ruled, k)] = fmt.Sprint(n)
		return nil
	})
}

// Finish makes lines of what was collected from all subtasks.
func (s *Stored) Finish() {
	slices.Sort(s.Parts)
	s.Lines[partsLine] = fmt.Sprint(s.Parts)
	for g, n := range s.Groups {
		s.Lines[fmt.Sprintf("%s/group/%d", Counts, g)] = fmt.Sprint(n)
	}
}

// audited is a function whose state is looked at after a restore.
type audited interface{}

// watchedOperator looks at what an operator has restored, and at its freezes.
type watchedOperator struct {
	operator.Operator
	o        Options
	world    *World
	uid      ids
	function audited
	ctx      *operator.Context
}

// watch puts a watchedOperator around an operator; audited gives the function
// that was made for it last.
func watch(p *operator.Program, o Options, world *World, uid ids, audited func() audited) {
	inner := p.Nodes[uid].New
	p.Nodes[uid].New = func(out func(string) any) (operator.Instance, error) {
		inst, err := inner(out)
		if err == nil {
			inst.Operator = &watchedOperator{Operator: inst.Operator, o: o, world: world, uid: uid, function: audited()}
		}
		return inst, err
	}
}

// Open implements operator.Operator.
func (w *watchedOperator) Open(ctx *operator.Context) error {
	w.ctx = ctx
	return w.Operator.Open(ctx)
}

// Restore implements operator.Operator.
func (w *watchedOperator) Restore(ctx context.Context, r *operator.Restored) error {
	if err := w.Operator.Restore(ctx, r); err != nil {
		return err
	}
	observer := w.world.Observer
	if observer == nil || observer.Restored == nil {
		return nil
	}
	live, err := w.live(ctx)
	if err != nil {
		return err
	}
	observer.Restored(w.ctx, live)
	if c, ok := w.function.(*statefulCounter); ok {
		c.settle()
	}
	return nil
}

// live reads the state that the operator has now, through a snapshot of it.
func (w *watchedOperator) live(ctx context.Context) (*Stored, error) {
	f, err := w.Operator.Freeze(element.Barrier{})
	if err != nil {
		return nil, err
	}
	defer f.Release()
	all := collected{groups: w.ctx.KeyGroups, lists: map[string][][]byte{}}
	if err := f.Write(ctx, &all); err != nil {
		return nil, err
	}
	out := newStored()
	if err := w.o.audit(w.uid, all.parts, all.lists, out); err != nil {
		return nil, err
	}
	// Only subtask 0 writes broadcast maps.
	if r, ok := w.function.(*ruler); ok {
		return out, w.o.auditRules(&r.rulerStates, out)
	}
	if n, ok := w.function.(*flowNode); ok && n.isRuled {
		return out, w.o.auditFlowRules(w.uid, &n.flowStates, out)
	}
	return out, nil
}

// Freeze implements operator.Operator.
func (w *watchedOperator) Freeze(b element.Barrier) (operator.Frozen, error) {
	f, err := w.Operator.Freeze(b)
	if err == nil {
		w.world.Observer.frozen(w.ctx, b.Checkpoint)
	}
	if err == nil && w.world.DropsTimers != nil && w.world.DropsTimers() {
		return &timerless{Frozen: f}, nil
	}
	return f, err
}

// timerless writes a snapshot without its timers: a mistake made on purpose.
type timerless struct{ operator.Frozen }

// Write implements operator.Frozen.
func (t *timerless) Write(ctx context.Context, w operator.SnapshotWriter) error {
	return t.Frozen.Write(ctx, timerlessWriter{w})
}

type timerlessWriter struct{ operator.SnapshotWriter }

// Keyed implements operator.SnapshotWriter.
func (t timerlessWriter) Keyed(f statebackend.Frozen) error {
	_, states, err := f.WriteSnapshot(&bytes.Buffer{})
	if err != nil || slices.ContainsFunc(states, func(m snapshot.StateMeta) bool { return m.Kind == timer.Stored }) {
		return err
	}
	return t.SnapshotWriter.Keyed(f)
}

// collected is a snapshot in memory.
type collected struct {
	groups keygroup.Range
	parts  []statebackend.RestoredPart
	lists  map[string][][]byte
}

// Keyed implements operator.SnapshotWriter.
func (c *collected) Keyed(f statebackend.Frozen) error {
	var data bytes.Buffer
	offsets, states, err := f.WriteSnapshot(&data)
	if err != nil {
		return err
	}
	c.parts = append(c.parts, statebackend.RestoredPart{Range: c.groups, Offsets: offsets, States: states, Data: data.Bytes()})
	return nil
}

// List implements operator.SnapshotWriter.
func (c *collected) List(name string, _ snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
	c.lists[name] = append(c.lists[name], elements...)
	return nil
}
