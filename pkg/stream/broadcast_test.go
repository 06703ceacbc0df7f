package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/stream"
)

// storedLists is the operator state of one operator: what each subtask wrote.
type storedLists struct {
	keyed []statebackend.RestoredPart
	modes map[string]snapshot.Redistribution
	lists map[string][][][]byte // by name and subtask
	at    int
	own   keyedWriter
}

// Keyed implements operator.SnapshotWriter.
func (s *storedLists) Keyed(f statebackend.Frozen) error {
	if err := s.own.Keyed(f); err != nil {
		return err
	}
	s.keyed = append(s.keyed, s.own.part)
	return nil
}

// List implements operator.SnapshotWriter.
func (s *storedLists) List(name string, mode snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
	for len(s.lists[name]) <= s.at {
		s.lists[name] = append(s.lists[name], nil)
	}
	s.lists[name][s.at], s.modes[name] = elements, mode
	return nil
}

// storedOf takes the snapshot of one operator.
func storedOf(d *driver, uid ids.OperatorUID) *storedLists {
	s := &storedLists{modes: map[string]snapshot.Redistribution{}, lists: map[string][][][]byte{}}
	for _, id := range d.graph.Subtasks() {
		for _, op := range d.chains[id].Operators {
			if op.Context.Operator != uid {
				continue
			}
			f, err := op.Instance.Operator.Freeze(element.Barrier{Checkpoint: 1})
			if err != nil {
				d.t.Fatal(err)
			}
			s.at, s.own = int(id.Index), keyedWriter{part: statebackend.RestoredPart{Range: op.Context.KeyGroups}}
			if err := f.Write(context.Background(), s); err != nil {
				d.t.Fatal(err)
			}
			f.Release()
		}
	}
	return s
}

// restored is what subtask index of parallelism gets, by the rules of snapshot.Reassign.
func (s *storedLists) restored(index, parallelism int) *operator.Restored {
	r := &operator.Restored{Checkpoint: 1, Keyed: s.keyed, Lists: map[string][]operator.ListElement{}}
	for name, bySubtask := range s.lists {
		all := slices.Concat(bySubtask...)
		if s.modes[name] == snapshot.SplitEvenly {
			all = all[index*len(all)/parallelism : (index+1)*len(all)/parallelism]
		}
		for _, b := range all {
			r.Lists[name] = append(r.Lists[name], operator.ListElement{Bytes: b})
		}
	}
	return r
}

// rule is a value that points to something: readers must not be able to change it.
type rule struct{ Names []string }

// ruleStates are what both functions below register.
type ruleStates struct {
	rules *state.Broadcast[uint64, rule]
	seen  *state.OperatorList[uint64]
	all   *state.OperatorList[uint64]
	saved *state.BroadcastSide
}

func (r *ruleStates) register(ctx state.OperatorContext) (err error) {
	if r.rules, err = state.NewBroadcast[uint64, rule](ctx, "rules"); err != nil {
		return err
	}
	if r.seen, err = state.NewSplitList[uint64](ctx, "seen"); err != nil {
		return err
	}
	r.all, err = state.NewUnionList[uint64](ctx, "all")
	return err
}

func (r *ruleStates) match(v uint64, out stream.Collector[string]) error {
	r.seen.Add(v)
	r.all.Add(v)
	// The right to change ends with the call that got it.
	if err := r.rules.Set(r.saved, v, rule{}); !errors.Is(err, state.ErrReadOnly) {
		return fmt.Errorf("changed from the other side: %v", err)
	}
	if err := r.rules.Remove(nil, v); !errors.Is(err, state.ErrReadOnly) {
		return fmt.Errorf("removed without a side: %v", err)
	}
	got, found, err := r.rules.Get(v)
	if err != nil || !found {
		return err
	}
	defer func() { got.Names[0] = "changed by a reader" }()
	return out.Collect(got.Names[0])
}

func (r *ruleStates) ProcessBroadcast(side *state.BroadcastSide, v uint64, _ stream.Collector[string]) error {
	r.saved = side
	if v > 100 {
		return r.rules.Remove(side, v-100)
	}
	return r.rules.Set(side, v, rule{Names: []string{fmt.Sprint("rule", v)}})
}

func (r *ruleStates) Finish(out stream.Collector[string]) error {
	for range r.seen.Get() {
		if err := out.Collect("seen"); err != nil {
			return err
		}
	}
	for range r.all.Get() {
		if err := out.Collect("union"); err != nil {
			return err
		}
	}
	return nil
}

type plainRules struct{ ruleStates }

func (r *plainRules) Open(ctx *stream.BroadcastContext) error { return r.register(ctx) }

func (r *plainRules) Process(_ *stream.BroadcastContext, v uint64, out stream.Collector[string]) error {
	return r.match(v, out)
}

type keyedRules struct {
	ruleStates
	count state.Value[int]
}

func (r *keyedRules) Open(ctx *stream.Context[string]) (err error) {
	if r.count, err = state.NewValue[int](ctx, "count"); err != nil {
		return err
	}
	return r.register(ctx)
}

func (r *keyedRules) Process(_ *stream.Context[string], v uint64, out stream.Collector[string]) error {
	n, _, err := r.count.Ref()
	if err != nil {
		return err
	}
	*n++
	return r.match(v, out)
}

func (r *keyedRules) ProcessBroadcast(side *state.BroadcastSide, v uint64, out stream.Collector[string]) error {
	if _, _, err := r.count.Get(); !errors.Is(err, state.ErrNoKey) {
		return fmt.Errorf("a broadcast record had a key: %v", err)
	}
	return r.ruleStates.ProcessBroadcast(side, v, out)
}

// runRules runs the job from a snapshot at some parallelism, and takes one.
func runRules(t *testing.T, keyed bool, parallelism int, from *storedLists, rules, numbers []uint64) (string, *storedLists) {
	t.Helper()
	out := &collected[string]{}
	d, err := newDriver(t, func(env *stream.Env) {
		r := stream.From(env, "rules", valuesOf(rules...), stream.WithParallelism(1))
		s := stream.From(env, "numbers", valuesOf(numbers...))
		if keyed {
			stream.To(stream.ConnectKeyedBroadcast(stream.KeyBy(s, parity), r, "match", func() *keyedRules { return &keyedRules{} }), "out", out)
		} else {
			stream.To(stream.ConnectBroadcast(s.Rebalance(), r, "match", func() *plainRules { return &plainRules{} }), "out", out)
		}
	}, parallelism, func(uid ids.OperatorUID, id ids.SubtaskID) *operator.Restored {
		if uid == "match" && from != nil {
			return from.restored(int(id.Index), parallelism)
		}
		return &operator.Restored{}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run(); err != nil {
		t.Fatal(err)
	}
	s := storedOf(d, "match")
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out.got)
	return strings.Join(out.got, " "), s
}

// Broadcast state is the same in every subtask, before and after a restore at
// any parallelism; of the lists one is dealt out and the other is everybody's.
func TestBroadcastState(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		for _, before := range []int{1, 3} {
			for _, after := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("keyed %t, parallelism %d then %d", keyed, before, after), func(t *testing.T) {
					got, s := runRules(t, keyed, before, nil, []uint64{1, 2, 3, 4, 104}, []uint64{1, 2, 3, 4})
					if want := "rule1 rule2 rule3" + strings.Repeat(" seen", 4) + strings.Repeat(" union", 4); got != want {
						t.Fatalf("got  %s\nwant %s", got, want)
					}
					if n := len(slices.Concat(s.lists["state/broadcast"]...)); n != 1 {
						t.Errorf("broadcast state is stored %d times", n)
					}
					got, _ = runRules(t, keyed, after, s, []uint64{101}, []uint64{3, 2, 1, 2})
					if want := "rule2 rule2 rule3" + strings.Repeat(" seen", 8) + strings.Repeat(" union", 4*after+4); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				})
			}
		}
	}
}

// What does not fit the program is refused by name.
func TestOperatorStateMismatch(t *testing.T) {
	store := func(register func(o *state.Operator) error) map[string][][]byte {
		o := state.NewOperator("op", 0)
		if err := errors.Join(register(o), o.Restore(nil)); err != nil {
			t.Fatal(err)
		}
		f, err := o.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		stored := map[string][][]byte{}
		if err := f.Write(func(name string, _ snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
			stored[name] = elements
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return stored
	}
	ints := func(o *state.Operator) error { _, err := state.NewUnionList[int64](o, "l"); return err }
	texts := func(o *state.Operator) error { _, err := state.NewUnionList[string](o, "l"); return err }
	none := func(*state.Operator) error { return nil }
	rules := func(o *state.Operator) error { _, err := state.NewBroadcast[string, int64](o, "r"); return err }
	other := func(o *state.Operator) error { _, err := state.NewBroadcast[string, string](o, "r"); return err }
	for _, c := range []struct {
		was, is func(o *state.Operator) error
		words   []string
	}{
		{ints, texts, []string{`"l"`, "int64", "string"}},
		{ints, none, []string{`"l"`, "not register"}},
		{rules, none, []string{"broadcast"}},
		{rules, other, []string{`"r"`, "int64", "string"}},
	} {
		o := state.NewOperator("op", 0)
		if err := c.is(o); err != nil {
			t.Fatal(err)
		}
		err := o.Restore(store(c.was))
		for _, w := range append(c.words, `"op"`) {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not name %s", err, w)
			}
		}
		if err := ints(o); err == nil || !strings.Contains(err.Error(), "opened") {
			t.Errorf("registered late: %v", err)
		}
	}
}
