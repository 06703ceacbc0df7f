package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

// Fingerprint hashes everything of a graph that an executor must agree on with
// the JobManager: topology, UIDs, types, connector options, parallelism. It is
// equal for two graphs exactly when Diff finds nothing between them. The job's
// name takes no part: it may be given at submission.
func Fingerprint(g JobGraph) string {
	w := fieldHash{sha256.New()}
	w.number(effectiveMaxParallelism(g))
	w.number(len(g.Operators))
	for _, op := range g.Operators {
		w.text(string(op.UID))
		w.text(string(op.Kind))
		w.number(op.Parallelism)
		w.number(len(op.Options))
		for _, o := range op.Options {
			w.text(o.Key)
			w.text(o.Value)
		}
		w.text(op.OutputType)
		w.text(op.KeyType)
		w.flag(op.Bounded)
		w.flag(op.TwoPhase)
		w.flag(op.CommitsRevocable)
		w.flag(op.ChainingDisabled)
		w.flag(op.DescribesStates)
		w.number(len(op.States))
		for _, s := range op.States {
			for _, text := range []string{s.Name, s.Kind, s.Codec, s.Schema, s.KeySchema} {
				w.text(text)
			}
		}
	}
	w.number(len(g.Edges))
	for _, e := range g.Edges {
		w.text(string(e.From))
		w.text(e.Output)
		w.text(string(e.To))
		w.number(e.Input)
		w.text(string(e.Partitioner))
		w.text(e.Type)
		w.flag(e.Feedback)
	}
	return hex.EncodeToString(w.h.Sum(nil))
}

// fieldHash hashes fields so that different lists of fields never give the
// same bytes: texts carry their length.
type fieldHash struct{ h hash.Hash }

func (w fieldHash) number(n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	w.h.Write(b[:])
}

func (w fieldHash) text(s string) {
	w.number(len(s))
	w.h.Write([]byte(s))
}

func (w fieldHash) flag(b bool) {
	if b {
		w.number(1)
	} else {
		w.number(0)
	}
}

// diffLinesMax bounds what Diff says: with two unrelated programs the first
// lines tell as much as all of them.
const diffLinesMax = 10

// Diff names what differs between the graph that was submitted and the one
// that the same program built later, one difference a line; empty when nothing
// does. The usual reason is a program that reads its environment or the clock
// while it builds the graph.
func Diff(submitted, built JobGraph) string {
	d := &differences{}
	d.field("max parallelism", effectiveMaxParallelism(submitted), effectiveMaxParallelism(built))
	d.operators(submitted, built)
	d.edges(submitted, built)
	if len(d.lines) > diffLinesMax {
		more := len(d.lines) - diffLinesMax
		d.lines = append(d.lines[:diffLinesMax], fmt.Sprintf("and %d more differences", more))
	}
	return strings.Join(d.lines, "\n")
}

type differences struct{ lines []string }

func (d *differences) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *differences) field(what string, submitted, built any) {
	if submitted != built {
		d.add("%s: submitted %v, built %v", what, quoted(submitted), quoted(built))
	}
}

func quoted(v any) any {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return v
}

func (d *differences) operators(submitted, built JobGraph) {
	builtByUID := indexOperators(built)
	submittedByUID := indexOperators(submitted)
	for _, op := range built.Operators {
		if _, ok := submittedByUID[op.UID]; !ok {
			d.add("operator %q is built, but was not submitted", op.UID)
		}
	}
	common := make([]ids.OperatorUID, 0, len(submitted.Operators))
	for _, s := range submitted.Operators {
		i, ok := builtByUID[s.UID]
		if !ok {
			d.add("operator %q was submitted, but is not built", s.UID)
			continue
		}
		common = append(common, s.UID)
		d.operator(s, built.Operators[i])
	}
	if len(common) == len(submitted.Operators) && len(common) == len(built.Operators) {
		for i, uid := range common {
			if built.Operators[i].UID != uid {
				d.add("operator %d: submitted %q, built %q (the order differs)", i, uid, built.Operators[i].UID)
				return
			}
		}
	}
}

func (d *differences) operator(s, b Operator) {
	name := fmt.Sprintf("operator %q: ", s.UID)
	d.field(name+"kind", string(s.Kind), string(b.Kind))
	d.field(name+"parallelism", s.Parallelism, b.Parallelism)
	d.field(name+"output type", s.OutputType, b.OutputType)
	d.field(name+"key type", s.KeyType, b.KeyType)
	d.field(name+"bounded", s.Bounded, b.Bounded)
	d.field(name+"two-phase", s.TwoPhase, b.TwoPhase)
	d.field(name+"commits revocable", s.CommitsRevocable, b.CommitsRevocable)
	d.field(name+"chaining disabled", s.ChainingDisabled, b.ChainingDisabled)
	d.field(name+"describes states", s.DescribesStates, b.DescribesStates)
	d.field(name+"number of states", len(s.States), len(b.States))
	for i := range min(len(s.States), len(b.States)) {
		if s.States[i] != b.States[i] {
			d.add("%sstate %d: submitted %q, built %q", name, i, s.States[i], b.States[i])
		}
	}
	d.field(name+"number of options", len(s.Options), len(b.Options))
	for i := range min(len(s.Options), len(b.Options)) {
		so, bo := s.Options[i], b.Options[i]
		if so.Key != bo.Key {
			d.field(name+"option", so.Key, bo.Key)
			return // the rest is shifted against each other
		}
		d.field(name+"option "+so.Key, so.Value, bo.Value)
	}
}

func (d *differences) edges(submitted, built JobGraph) {
	d.field("number of edges", len(submitted.Edges), len(built.Edges))
	for i := range min(len(submitted.Edges), len(built.Edges)) {
		if s, b := submitted.Edges[i], built.Edges[i]; s != b {
			d.add("edge %d: submitted %v, built %v", i, s, b)
		}
	}
}

// String prints the edge with everything that tells it from another.
func (e Edge) String() string {
	from, to := string(e.From), string(e.To)
	if e.Output != "" {
		from += "[" + e.Output + "]"
	}
	if e.Input != 0 {
		to += fmt.Sprintf("[input %d]", e.Input)
	}
	if e.Feedback {
		to += " (feedback)"
	}
	return fmt.Sprintf("%s -%s-> %s (%s)", from, e.Partitioner, to, e.Type)
}
