package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

// Match says what becomes of a piece of state when a program starts from a checkpoint.
type Match uint8

// The matches.
const (
	// Matches: the checkpoint has it and the program takes it.
	Matches Match = iota + 1
	// New: the program has it, the checkpoint does not; it starts empty.
	New
	// Dropped: the checkpoint has it and the program does not.
	Dropped
	// Migrated: the program takes it, as values of another type.
	Migrated
	// Incompatible: the program has a state of that name that cannot take it.
	Incompatible
)

// DroppedKind is the StateMeta.Kind of stored entries that are not to be
// restored: whoever restores skips them. Stored checkpoints have none.
const DroppedKind = "dropped"

// ListKind is the kind of a list of operator state. A keyed list has it too,
// and a KeySchema.
const ListKind = "list"

// BroadcastKind is the kind of a broadcast map.
const BroadcastKind = "broadcast"

// String is the word that users see.
func (m Match) String() string {
	switch m {
	case Matches:
		return "matches"
	case New:
		return "new"
	case Dropped:
		return "dropped"
	case Migrated:
		return "migrated"
	case Incompatible:
		return "incompatible"
	}
	return fmt.Sprintf("Match(%d)", uint8(m))
}

// StateMatch is one line of a comparison: a state of an operator, or the
// operator itself where it has no state.
type StateMatch struct {
	UID ids.OperatorUID
	// State is empty for an operator without stored state.
	State string
	// Kind is that of a keyed state, "list", "broadcast" or "splits"; empty
	// without State.
	Kind  string
	Match Match
	// The parallelism of the operator in the checkpoint and in the program; 0
	// where there is no such operator.
	OldParallelism, NewParallelism int
	// Changes are of a Migrated state, in words; of an Incompatible one, why.
	Changes []string
}

// CompareSchemas tells how values stored with one codec and schema are read
// with another: the changes in words, or why they cannot be.
type CompareSchemas func(oldCodec, oldSchema, newCodec, newSchema string) (changes []string, err error)

// SplitsKind is the StateMatch.Kind of a source's list of splits.
const SplitsKind = "splits"

// Compare tells what of a checkpoint the program's operators take, in the
// order of the program, and behind it what they would leave. State is matched
// by the UID of its operator and its name. Of an operator that is not
// described all stored states match: one that it does not register is refused
// by its subtasks. c is nil for a start from nothing.
func Compare(c *CompletedCheckpoint, targets []OperatorTarget, schemas CompareSchemas) []StateMatch {
	var out []StateMatch
	if c == nil {
		c = &CompletedCheckpoint{}
	}
	wanted := make(map[ids.OperatorUID]bool, len(targets))
	for i := range targets {
		t := &targets[i]
		wanted[t.UID] = true
		states, parallelism, exists := c.statesOf(t.UID)
		line := StateMatch{UID: t.UID, Match: Matches, OldParallelism: parallelism, NewParallelism: t.Parallelism}
		if !exists {
			line.Match = New
		}
		begin := len(out)
		for _, s := range states {
			out = append(out, t.take(line, s, schemas))
		}
		for _, s := range t.States {
			isStored := func(o namedState) bool {
				return s.isNamedAs(o) || s.Kind == BroadcastKind && o.isAllBroadcast()
			}
			if !slices.ContainsFunc(states, isStored) && !s.isRuntimes() {
				out = append(out, StateMatch{UID: t.UID, State: s.Name, Kind: s.Kind, Match: New, OldParallelism: parallelism, NewParallelism: t.Parallelism})
			}
		}
		if len(out) == begin {
			out = append(out, line)
		}
	}
	for _, uid := range c.lostOperators(wanted) {
		states, parallelism, _ := c.statesOf(uid)
		for _, s := range states {
			out = append(out, StateMatch{UID: uid, State: s.Name, Kind: s.Kind, Match: Dropped, OldParallelism: parallelism})
		}
	}
	return out
}

// take is the line of a stored state.
func (t *OperatorTarget) take(line StateMatch, stored namedState, schemas CompareSchemas) StateMatch {
	line.State, line.Kind = stored.Name, stored.Kind
	is, has := t.state(stored)
	if !t.Described {
		return line
	}
	if !has {
		line.Match, line.NewParallelism = Dropped, t.Parallelism
		return line
	}
	incompatible := func(why string) StateMatch {
		line.Match, line.Changes = Incompatible, []string{why}
		return line
	}
	switch {
	case stored.Kind != is.Kind:
		return incompatible(fmt.Sprintf("stored as %s, the program has %s", stored.Kind, is.Kind))
	case stored.KeySchema != is.KeySchema:
		return incompatible(fmt.Sprintf("stored with keys %s, the program has %s: the key type of stored state cannot change", stored.KeySchema, is.KeySchema))
	case stored.Codec == "": // the runtime's, or not described: its subtasks compare it
		return line
	}
	for _, v := range append([]StoredSchema{{Codec: stored.Codec, Schema: stored.Schema}}, stored.Earlier...) {
		changes, err := schemas(v.Codec, v.Schema, is.Codec, is.Schema)
		if err != nil {
			return incompatible(err.Error())
		}
		for _, change := range changes {
			if !slices.Contains(line.Changes, change) {
				line.Changes = append(line.Changes, change)
			}
		}
	}
	if len(line.Changes) > 0 {
		line.Match = Migrated
	}
	return line
}

// CheckStates refuses a program with states that cannot take what is stored
// under their names.
func CheckStates(c *CompletedCheckpoint, targets []OperatorTarget, schemas CompareSchemas) error {
	for _, m := range Compare(c, targets, schemas) {
		if m.Match == Incompatible {
			return fmt.Errorf("operator %q: state %q of checkpoint %d: %s", m.UID, m.State, c.ID, strings.Join(m.Changes, ", "))
		}
	}
	return nil
}

// describingList is the list in which package state describes the others: it
// is no state of the user's.
const describingList = "state/lists"

// broadcastList is the list in which package state stores all broadcast maps.
const broadcastList = "state/broadcast"

// isAllBroadcast reports whether a state stands for all broadcast maps of an
// operator, because the version that stored them did not say which they are.
func (m StateMeta) isAllBroadcast() bool { return m.space() == listNames && m.Name == broadcastList }

// WatermarkList is the list in which a subtask keeps the watermark of an
// operator that works with event time. It is no state of the user's either.
const WatermarkList = "watermark"

// isRuntimes reports whether a state is not one that the program registers.
func (m StateMeta) isRuntimes() bool {
	return m.space() == listNames && (m.Name == describingList || m.Name == WatermarkList)
}

// nameSpace is what state names of an operator are unique in: a keyed state, an
// operator list and a broadcast map may share one.
type nameSpace uint8

const (
	keyedNames nameSpace = iota
	listNames
	broadcastNames
)

func (m StateMeta) space() nameSpace {
	switch {
	case m.Kind == BroadcastKind:
		return broadcastNames
	case m.Kind == ListKind && m.KeySchema == "":
		return listNames
	}
	return keyedNames
}

// isNamedAs reports whether two descriptions are of one state, before and after
// a change of the program.
func (m StateMeta) isNamedAs(o StateMeta) bool { return m.Name == o.Name && m.space() == o.space() }

// namedState is a state as it is stored, or as one of its files has it.
type namedState = StateMeta

// statesOf lists the states that are stored of an operator, each once.
func (c *CompletedCheckpoint) statesOf(uid ids.OperatorUID) (states []namedState, parallelism int, exists bool) {
	add := func(s namedState) {
		if !s.isRuntimes() && s.Kind != DroppedKind && !slices.ContainsFunc(states, s.Equal) {
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
					add(meta)
				}
			}
			for _, l := range subtask.Lists {
				for _, meta := range l.States {
					add(meta)
				}
				if len(l.States) == 0 {
					add(namedState{Name: l.Name, Kind: ListKind})
				}
			}
		}
	}
	for _, list := range c.Splits {
		if list.UID == uid {
			exists = true
			if len(list.Splits) > 0 {
				add(namedState{Name: "splits", Kind: SplitsKind})
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
		return refuseLostStates(c, targets)
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

// refuseLostStates is refuseLostState for states of operators that are there.
func refuseLostStates(c *CompletedCheckpoint, targets []OperatorTarget) error {
	for i := range targets {
		states, _, _ := c.statesOf(targets[i].UID)
		for _, s := range states {
			if targets[i].drops(s) {
				return fmt.Errorf("checkpoint %d has state %q of operator %q, which the program does not register: keep the state's name as it was, or allow state that is not restored",
					c.ID, s.Name, targets[i].UID)
			}
		}
	}
	return nil
}

// LostStates are the states of operators that the program has which it would
// not take, as UID/STATE.
func LostStates(c *CompletedCheckpoint, targets []OperatorTarget) []string {
	var lost []string
	for i := range targets {
		states, _, _ := c.statesOf(targets[i].UID)
		for _, s := range states {
			if name := string(targets[i].UID) + "/" + s.Name; targets[i].drops(s) && !slices.Contains(lost, name) {
				lost = append(lost, name)
			}
		}
	}
	return lost
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
// and states that the program does not have, for users who have said that
// their state may go. Keyed states and broadcast maps are marked with
// DroppedKind, because their entries are in the same files as others. The
// handles are shared; nothing stored changes.
func WithoutLostState(c *CompletedCheckpoint, targets []OperatorTarget) *CompletedCheckpoint {
	if len(LostOperators(c, targets)) == 0 && len(LostStates(c, targets)) == 0 {
		return c
	}
	byUID := make(map[ids.OperatorUID]*OperatorTarget, len(targets))
	for i := range targets {
		byUID[targets[i].UID] = &targets[i]
	}
	kept := *c
	kept.Operators, kept.Splits = nil, nil
	for _, op := range c.Operators {
		if t := byUID[op.UID]; t != nil {
			kept.Operators = append(kept.Operators, op.without(t))
		}
	}
	for _, list := range c.Splits {
		if byUID[list.UID] != nil {
			kept.Splits = append(kept.Splits, list)
		}
	}
	return &kept
}

// without is the operator's state as far as the program takes it.
func (op OperatorState) without(t *OperatorTarget) OperatorState {
	if !t.Described {
		return op
	}
	op.Subtasks = slices.Clone(op.Subtasks)
	for i := range op.Subtasks {
		s := &op.Subtasks[i]
		s.Keyed = slices.Clone(s.Keyed)
		for j := range s.Keyed {
			s.Keyed[j].States = t.mark(s.Keyed[j].States)
		}
		lists := s.Lists
		s.Lists = nil
		for _, l := range lists {
			if l, some := l.without(t); some {
				s.Lists = append(s.Lists, l)
			}
		}
	}
	return op
}

// mark returns the states with those marked that the program does not have.
func (t *OperatorTarget) mark(states []StateMeta) []StateMeta {
	states = slices.Clone(states)
	for i := range states {
		if t.drops(states[i]) {
			states[i].Kind = DroppedKind
		}
	}
	return states
}

// without is the list as far as the program takes it, and whether it takes any.
func (l OperatorStateHandle) without(t *OperatorTarget) (OperatorStateHandle, bool) {
	if len(l.States) == 0 {
		is := StateMeta{Name: l.Name, Kind: ListKind}
		return l, is.isRuntimes() || !t.drops(is)
	}
	l.States = t.mark(l.States)
	return l, len(droppedOf(l.States)) < len(l.States)
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
					if meta.KeySchema != program && !strings.HasPrefix(meta.KeySchema, mapKeySchema(program)) && meta.Kind != DroppedKind {
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
