package simjob

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/timer"
)

// traced is where the tokens of a flow are when its sources have been read
// up to some positions and all of them have come as far as they can.
type traced struct {
	lines  Lines
	output map[Count]bool
	// lost are tokens that the checkpoint keeps somewhere, where they never came.
	lost []string
}

// trace follows every token of a checkpoint. Those that wait for timers have
// not come further.
func (o Options) trace(s *Stored) traced {
	f := o.Flow
	t := traced{lines: Lines{}, output: map[Count]bool{}}
	outs := make([][]Token, len(f.Nodes))
	for i, v := range f.Nodes {
		if v.Kind == SourceNode {
			for split := v.First; split < v.First+v.Splits; split++ {
				for n := range s.Positions[split] {
					outs[i] = append(outs[i], first(uint64(split), n))
				}
			}
			continue
		}
		waiting := map[uint64]bool{}
		for _, token := range s.Due[i] {
			waiting[token.ID] = true
		}
		inLoop := o.heldInLoop(s, i)
		counts, folds, rules := map[uint64]uint64{}, map[[2]uint64]Fold{}, map[uint64]Fold{}
		for gate, links := range v.Inputs {
			for _, l := range links {
				held := map[uint64]int{}
				for _, token := range s.Flight.Tokens[f.channel(l, i, gate)] {
					held[token.ID]++
				}
				for _, token := range outs[l.From] {
					if held[token.ID] > 0 {
						held[token.ID]--
						continue
					}
					if v.Kind.isLoop() {
						o.traceLoop(s, i, token, &outs[i], counts, folds, inLoop)
						continue
					}
					switch {
					case v.Kind == SinkNode:
						t.output[f.atSink(token, i)] = true
						continue
					case v.Kind == RuledNode && gate == 1:
						rules[token.Split] = rules[token.Split].add(token)
					case v.Kind.isKeyed():
						key := o.keyOf(token, i)
						counts[key]++
						by := [2]uint64{key, token.Split}
						folds[by] = folds[by].add(token)
					}
					outs[i] = append(outs[i], childrenOf(token, i, gate)...)
					if kept, _, ok := waits(token, i, gate); v.HasTimers && ok {
						if waiting[kept.ID] {
							delete(waiting, kept.ID)
						} else {
							outs[i] = append(outs[i], childrenOf(kept, i, timerGate)...)
						}
					}
				}
				for id, n := range held {
					if n > 0 {
						t.lost = append(t.lost, fmt.Sprintf("token %x is in flight from %s to %s %d times more than it was emitted", id, f.uid(l.From), f.uid(i), n))
					}
				}
			}
		}
		uid := f.uid(i)
		for at, held := range inLoop {
			for token, n := range held {
				if n > 0 {
					t.lost = append(t.lost, fmt.Sprintf("token %x is in flight in %s from %s to %s %d times more than it came there", token.ID, uid, at.From, at.To, n))
				}
			}
		}
		for key, n := range counts {
			t.lines[line(uid, key, "n")] = fmt.Sprint(n)
		}
		for by, fold := range folds {
			t.lines[foldLine(uid, by[0], by[1])] = fmt.Sprint(fold)
		}
		for split, fold := range rules {
			t.lines[ruleLine(uid, split)] = fmt.Sprint(fold)
		}
		for id := range waiting {
			t.lost = append(t.lost, fmt.Sprintf("token %x waits for a timer of %s, where it never came", id, uid))
		}
	}
	return t
}

// heldInLoop are the tokens in flight on the edges of a loop.
func (o Options) heldInLoop(s *Stored, node int) map[Channel]map[Token]int {
	f := o.Flow
	if !f.Nodes[node].Kind.isLoop() {
		return nil
	}
	held := map[Channel]map[Token]int{}
	for _, at := range []Channel{{From: f.enterOf(node), To: f.headOf(node)}, {From: f.headOf(node), To: f.bodyOf(node)}, {From: f.againOf(node), To: f.headOf(node)}} {
		held[at] = map[Token]int{}
		for _, token := range s.Flight.Tokens[at] {
			held[at][token]++
		}
	}
	return held
}

// traceLoop follows a token through a loop until it leaves or is in flight.
func (o Options) traceLoop(s *Stored, node int, t Token, out *[]Token, counts map[uint64]uint64, folds map[[2]uint64]Fold, inLoop map[Channel]map[Token]int) {
	f := o.Flow
	stays := func(from, to ids, t Token) bool {
		held := inLoop[Channel{From: from, To: to}]
		if held[t] == 0 {
			return false
		}
		held[t]--
		return true
	}
	t = f.Nodes[node].entering(t, node)
	from := f.enterOf(node)
	for {
		if stays(from, f.headOf(node), t) || stays(f.headOf(node), f.bodyOf(node), t) {
			return
		}
		if f.Nodes[node].Kind.isKeyed() {
			key := o.keyOf(t, node)
			counts[key]++
			by := [2]uint64{key, t.Split}
			folds[by] = folds[by].add(t)
		}
		if t.Left == 0 {
			*out = append(*out, childrenOf(t, node, 0)...)
			return
		}
		t, from = round(t, node), f.againOf(node)
	}
}

func foldLine(uid ids, key, split uint64) string { return line(uid, key, fmt.Sprintf("by/%d", split)) }

func ruleLine(uid ids, split uint64) string { return fmt.Sprintf("%s/rule/%d", uid, split) }

// auditFlow reads the stored state of one keyed node.
func (o Options) auditFlow(node int, parts []statebackend.RestoredPart, lists map[string][][]byte, into *Stored) (err error) {
	uid := o.Flow.uid(node)
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
	var s flowStates
	ruled := o.Flow.Nodes[node].Kind == RuledNode
	if err := s.open(ctx, ruled); err != nil {
		return err
	}
	if err := keyed.Backend().Restore(rest); err != nil {
		return err
	}
	if err := timers.Restore(waiting); err != nil {
		return err
	}
	if err := ctx.Operator.Restore(lists); err != nil {
		return err
	}
	due := map[[2]uint64]bool{}
	err = o.eachKey(keyed, func(key uint64) error {
		n, found, err := s.n.Get()
		if err != nil || !found {
			return err
		}
		into.Lines[line(uid, key, "n")] = fmt.Sprint(n)
		err = s.by.Each(func(split uint64, f Fold) error {
			into.Lines[foldLine(uid, key, split)] = fmt.Sprint(f)
			return nil
		})
		if err != nil {
			return err
		}
		return s.due.Each(func(at int64, all []Token) error {
			due[[2]uint64{key, uint64(at)}] = true
			into.Lines["~"+line(uid, key, fmt.Sprintf("due/%d", at))] = fmt.Sprint(all)
			into.Due[node] = append(into.Due[node], all...)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for {
		key, at, ok := timers.EventTime.PopDue(1 << 62)
		if !ok {
			break
		}
		if !due[[2]uint64{key, uint64(at)}] {
			return fmt.Errorf("timer %d of key %d is stored, for which nothing waits", at, key)
		}
		delete(due, [2]uint64{key, uint64(at)})
	}
	for at := range due {
		return fmt.Errorf("timer %d of key %d is missing", at[1], at[0])
	}
	if ruled {
		return o.auditFlowRules(uid, &s, into)
	}
	return nil
}

func (o Options) auditFlowRules(uid ids, s *flowStates, into *Stored) error {
	return s.rules.Each(func(split uint64, f Fold) error {
		into.Lines[ruleLine(uid, split)] = fmt.Sprint(f)
		return nil
	})
}
