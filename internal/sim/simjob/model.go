package simjob

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/keygroup"
)

// Lines are the content of a checkpoint, one line for each thing that is
// stored, by name. Names that begin with ~ depend on more than how far the
// splits have been read: on how far watermarks and clocks were.
type Lines map[string]string

// Apart lists how two contents differ, up to a few lines. Lines for which
// skips is true are left out.
func (l Lines) Apart(want Lines, skips func(string) bool) []string {
	var out []string
	for name, v := range l {
		if w, ok := want[name]; !skips(name) && (!ok || w != v) {
			out = append(out, fmt.Sprintf("%s is %s, want %s", name, v, w))
		}
	}
	for name, w := range want {
		if _, ok := l[name]; !ok && !skips(name) {
			out = append(out, fmt.Sprintf("%s is missing, want %s", name, w))
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 6)]
}

// Short lists counts that are lower than they must be, and such that are equal
// with another sum, up to a few lines.
func (l Lines) Short(want Lines) []string {
	var out []string
	for name, w := range want {
		v := l[name]
		if is, must := countIn(v), countIn(w); is < must || is == must && v != w {
			out = append(out, fmt.Sprintf("%s is %q, want at least %s", name, v, w))
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 6)]
}

// countIn reads the count at the beginning of a line's value.
func countIn(v string) (n uint64) {
	for _, c := range strings.TrimPrefix(v, "{") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// IsByChance reports whether a line is not the oracle's to know.
func IsByChance(name string) bool { return name[0] == '~' }

// IsEverywhere reports whether a line is the same in all subtasks.
func IsEverywhere(name string) bool { return strings.Contains(name, "/rule/") }

// IsOf reports whether a line is that operator's.
func IsOf(name string, uid ids) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "~"), string(uid)+"/")
}

// splits is the number of all splits, those of the rules last.
func (o Options) splits() int {
	if o.Flow != nil {
		return o.Flow.Splits()
	}
	return o.Splits + o.RuleSplits
}

// Records is the number of records of a split.
func (o Options) Records(split int) uint64 {
	if o.Flow != nil {
		return o.Flow.sourceOf(split).Records
	}
	if split < o.Splits {
		return o.RecordsPerSplit
	}
	return o.RulesPerSplit
}

// ExpectedLines is what a checkpoint holds when its splits have been read as
// far as it says, but for the lines that are by chance. (I2)
func (o Options) ExpectedLines(s *Stored) Lines {
	if o.Flow != nil {
		return o.trace(s).lines
	}
	l := Lines{}
	if !o.Stateful {
		for key, n := range o.counted(s) {
			if n != 0 {
				l[line(Counts, key, "n")] = fmt.Sprint(n)
			}
		}
		return l
	}
	type content struct {
		n        uint64
		largest  []uint64
		since    map[uint64]uint64
		sum, ofN uint64
	}
	by := map[uint64]*content{}
	var parts []uint64
	groups := map[keygroup.Group]uint64{}
	ruled := map[uint64]uint64{}
	// What is held wrongly is ExpectedOutput's to tell.
	toCounts, _ := s.heldEvents(Counts)
	toRuled, _ := s.heldEvents(Ruled)
	for split := range o.Splits {
		for n := range s.Positions[split] {
			e := Event{Split: uint64(split), N: n}
			key := o.Key(split, n)
			if !toRuled[e] {
				ruled[key]++
			}
			if toCounts[e] {
				continue
			}
			c := by[key]
			if c == nil {
				c = &content{since: map[uint64]uint64{}}
				by[key] = c
			}
			c.n++
			c.largest = append(c.largest, e.id())
			if n%5 == 0 {
				delete(c.since, e.Split)
			} else {
				c.since[e.Split]++
			}
			c.sum += e.id()
			c.ofN += n
			if n%partEvery == 0 {
				parts = append(parts, e.id())
			}
			groups[keygroup.OfHash(keys.Hash(&key), o.MaxParallelism)]++
		}
	}
	for key, n := range ruled {
		l[line(Ruled, key, "n")] = fmt.Sprint(n)
	}
	for key, c := range by {
		slices.Sort(c.largest)
		l[line(Counts, key, "n")] = fmt.Sprint(c.n)
		l[line(Counts, key, "largest")] = fmt.Sprint(c.largest[max(0, len(c.largest)-largestKept):])
		for split, n := range c.since {
			l[line(Counts, key, fmt.Sprintf("since/%d", split))] = fmt.Sprint(n)
		}
		l[line(Counts, key, "sum")] = fmt.Sprint(c.sum)
		l[line(Counts, key, "mean")] = fmt.Sprint(c.ofN * 1000 / c.n)
	}
	slices.Sort(parts)
	l[partsLine] = fmt.Sprint(parts)
	for g, n := range groups {
		l[fmt.Sprintf("%s/group/%d", Counts, g)] = fmt.Sprint(n)
	}
	rules := map[uint64]uint64{}
	for split := o.Splits; split < o.splits(); split++ {
		for n := range s.Positions[split] {
			rules[n%ruleKeys]++
		}
	}
	for k, n := range rules {
		l[fmt.Sprintf("%s/rule/%d", Ruled, k)] = fmt.Sprint(n)
	}
	return l
}

// partsLine has the elements of the split list of all subtasks.
const partsLine = Counts + "/parts"

func line(uid ids, key uint64, name string) string { return fmt.Sprintf("%s/%d/%s", uid, key, name) }

// ExpectedOutput is the output in front of a checkpoint: what follows from the
// records that its sources have read, less what its timers are still to emit.
// Its error names a timer that should not be there. (I1, I12)
func (o Options) ExpectedOutput(s *Stored) (map[Count]bool, error) {
	if o.Flow != nil {
		t := o.trace(s)
		if len(t.lost) > 0 && o.Mode != AtLeastOnce {
			return nil, errors.New(t.lost[0])
		}
		return t.output, nil
	}
	out := map[Count]bool{}
	if !o.Stateful {
		for key, n := range o.counted(s) {
			if int64(n) < 0 {
				return nil, fmt.Errorf("key %d is in flight more often than it was read", key)
			}
			for i := range n {
				out[Count{Key: key, N: i + 1}] = true
			}
		}
		return out, s.withhold(out)
	}
	toCounts, err := s.heldEvents(Counts)
	if err != nil {
		return nil, err
	}
	toRuled, err := s.heldEvents(Ruled)
	if err != nil {
		return nil, err
	}
	counts := map[uint64]uint64{}
	for split := range o.Splits {
		for n := range s.Positions[split] {
			e := Event{Split: uint64(split), N: n}
			key := o.Key(split, n)
			if n%8 == 0 && !toRuled[e] {
				out[Count{Key: ruledRecord | key, N: e.id()}] = true
			}
			if toCounts[e] {
				continue
			}
			counts[key]++
			out[Count{Key: key, N: counts[key]}] = true
			register, deletes := o.timersOf(e)
			for _, t := range register {
				out[Count{Key: eventTimer | key, N: uint64(t)}] = true
			}
			if deletes != 0 {
				delete(out, Count{Key: eventTimer | key, N: uint64(deletes)})
			}
			if n%processingEvery == processingOffset {
				out[Count{Key: processingTimer | key, N: e.id()}] = true
			}
		}
	}
	for _, c := range s.Waiting {
		if !out[c] {
			return nil, fmt.Errorf("timer %d of key %d is stored, which no record in front of the checkpoint left there", c.N, c.Key&(1<<kindShift-1))
		}
		delete(out, c)
	}
	return out, s.withhold(out)
}

// counted is how often the counting job has counted each key.
func (o Options) counted(s *Stored) map[uint64]uint64 {
	counts := o.Expected(s.Position)
	for _, key := range s.Flight.Keys {
		counts[key]--
	}
	return counts
}

// PossibleOutput is all that can ever come out of a flow.
func (o Options) PossibleOutput() map[Count]bool {
	all := newStored()
	for split := range o.splits() {
		all.Positions = append(all.Positions, o.Records(split))
	}
	return o.trace(all).output
}

// GroupOf is the key group of a key.
func GroupOf(key uint64, maxParallelism int) keygroup.Group {
	return keygroup.OfHash(keys.Hash(&key), maxParallelism)
}
