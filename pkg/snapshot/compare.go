package snapshot

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

// Match says what becomes of a piece of state when a program starts from a checkpoint.
type Match uint8

// The matches.
const (
	// Matches: the checkpoint has it and the program has the operator.
	Matches Match = iota + 1
	// New: the program has the operator, the checkpoint does not; it starts empty.
	New
	// Dropped: the checkpoint has it and the program does not have the operator.
	Dropped
)

// String is the word that users see.
func (m Match) String() string {
	switch m {
	case Matches:
		return "matches"
	case New:
		return "new"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("Match(%d)", uint8(m))
}

// StateMatch is one line of a comparison: a state of an operator, or the
// operator itself where it has no state.
type StateMatch struct {
	UID ids.OperatorUID
	// State is empty for an operator without stored state.
	State string
	// Kind is that of a keyed state, "list" or "splits"; empty without State.
	Kind  string
	Match Match
	// The parallelism of the operator in the checkpoint and in the program; 0
	// where there is no such operator.
	OldParallelism, NewParallelism int
}

// SplitsKind is the StateMatch.Kind of a source's list of splits.
const SplitsKind = "splits"

// Compare tells what of a checkpoint the program's operators take, in the
// order of the program, and behind it what they would leave. State is matched
// by the UID of its operator here; which states an operator has is only known
// where it runs, so that all stored states of an operator that exists match,
// and one that it does not register is refused by its subtasks. c is nil for
// a start from nothing.
func Compare(c *CompletedCheckpoint, targets []OperatorTarget) []StateMatch {
	var out []StateMatch
	if c == nil {
		c = &CompletedCheckpoint{}
	}
	wanted := make(map[ids.OperatorUID]bool, len(targets))
	for _, t := range targets {
		wanted[t.UID] = true
		states, parallelism, exists := c.statesOf(t.UID)
		line := StateMatch{UID: t.UID, Match: Matches, OldParallelism: parallelism, NewParallelism: t.Parallelism}
		if !exists {
			line.Match = New
		}
		if len(states) == 0 {
			out = append(out, line)
		}
		for _, s := range states {
			line.State, line.Kind = s.name, s.kind
			out = append(out, line)
		}
	}
	for _, uid := range c.lostOperators(wanted) {
		states, parallelism, _ := c.statesOf(uid)
		for _, s := range states {
			out = append(out, StateMatch{UID: uid, State: s.name, Kind: s.kind, Match: Dropped, OldParallelism: parallelism})
		}
	}
	return out
}

type namedState struct{ name, kind string }

// statesOf lists the states that are stored of an operator, each once.
func (c *CompletedCheckpoint) statesOf(uid ids.OperatorUID) (states []namedState, parallelism int, exists bool) {
	seen := make(map[namedState]bool)
	add := func(name, kind string) {
		if s := (namedState{name, kind}); !seen[s] {
			seen[s] = true
			states = append(states, s)
		}
	}
	for i := range c.Operators {
		op := &c.Operators[i]
		if op.UID != uid {
			continue
		}
		parallelism, exists = op.Parallelism, true
		for _, subtask := range op.Subtasks {
			for _, k := range subtask.Keyed {
				for _, meta := range k.States {
					add(meta.Name, meta.Kind)
				}
			}
			for _, l := range subtask.Lists {
				add(l.Name, "list")
			}
		}
	}
	for _, list := range c.Splits {
		if list.UID == uid {
			exists = true
			if len(list.Splits) > 0 {
				add("splits", SplitsKind)
			}
		}
	}
	return states, parallelism, exists
}

// lostOperators are those with state that are not wanted, in the order of the checkpoint.
func (c *CompletedCheckpoint) lostOperators(wanted map[ids.OperatorUID]bool) []ids.OperatorUID {
	var lost []ids.OperatorUID
	seen := make(map[ids.OperatorUID]bool)
	add := func(uid ids.OperatorUID) {
		if !wanted[uid] && !seen[uid] {
			seen[uid] = true
			lost = append(lost, uid)
		}
	}
	for i := range c.Operators {
		if c.Operators[i].hasState() {
			add(c.Operators[i].UID)
		}
	}
	for _, list := range c.Splits {
		if len(list.Splits) > 0 {
			add(list.UID)
		}
	}
	return lost
}

// refuseLostState names the operators whose state nobody would take. Leaving
// state behind must be the user's word, never a renamed UID's effect.
func refuseLostState(c *CompletedCheckpoint, targets []OperatorTarget) error {
	lost := LostOperators(c, targets)
	if len(lost) == 0 {
		return nil
	}
	names := make([]string, len(lost))
	for i, uid := range lost {
		names[i] = fmt.Sprintf("%q", uid)
	}
	operators, uids := "operator", "operator's UID as it was"
	if len(lost) > 1 {
		operators, uids = "operators", "operators' UIDs as they were"
	}
	return fmt.Errorf("checkpoint %d has state of %s %s, which the program does not have: keep the %s, or allow state that is not restored",
		c.ID, operators, strings.Join(names, ", "), uids)
}

// LostOperators are the operators whose state the program would not take, in
// the order of the checkpoint.
func LostOperators(c *CompletedCheckpoint, targets []OperatorTarget) []ids.OperatorUID {
	return c.lostOperators(uidsOf(targets))
}

func uidsOf(targets []OperatorTarget) map[ids.OperatorUID]bool {
	uids := make(map[ids.OperatorUID]bool, len(targets))
	for _, t := range targets {
		uids[t.UID] = true
	}
	return uids
}

// WithoutLostState returns the checkpoint as it is, or without the operators
// that the program does not have, for users who have said that their state may
// go. The handles are shared; nothing stored changes.
func WithoutLostState(c *CompletedCheckpoint, targets []OperatorTarget) *CompletedCheckpoint {
	wanted := uidsOf(targets)
	if len(c.lostOperators(wanted)) == 0 {
		return c
	}
	kept := *c
	kept.Operators, kept.Splits = nil, nil
	for _, op := range c.Operators {
		if wanted[op.UID] {
			kept.Operators = append(kept.Operators, op)
		}
	}
	for _, list := range c.Splits {
		if wanted[list.UID] {
			kept.Splits = append(kept.Splits, list)
		}
	}
	return &kept
}

// CheckKeys refuses a program whose operators have keys of another type than
// their stored state: the stored keys would be looked for in the wrong place.
// keySchema gives the schema of an operator's key, empty where it is not keyed
// or not known.
//
// The entries of a map are stored under the record's key and the user key, a
// struct of both. Only the former is known here; the user key is compared
// where the state is registered.
func CheckKeys(c *CompletedCheckpoint, keySchema func(ids.OperatorUID) string) error {
	for i := range c.Operators {
		op := &c.Operators[i]
		program := keySchema(op.UID)
		if program == "" {
			continue
		}
		for _, subtask := range op.Subtasks {
			for _, k := range subtask.Keyed {
				for _, meta := range k.States {
					if meta.KeySchema != program && !strings.HasPrefix(meta.KeySchema, mapKeySchema(program)) {
						return fmt.Errorf("operator %q: checkpoint %d has state %q with keys %s, the program has %s: the key type of stored state cannot change",
							op.UID, c.ID, meta.Name, meta.KeySchema, program)
					}
				}
			}
		}
	}
	return nil
}

// mapKeySchema is how the key schema of a map begins (statebackend.MapKey) in
// an operator whose key has the schema given.
func mapKeySchema(key string) string {
	version, of, _ := strings.Cut(key, ":")
	return version + ":struct{Key:" + of + ",User:"
}
