package snapshot

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
)

// comparedCheckpoint has a source of which only splits are known, a keyed
// operator with two states and a sink.
func comparedCheckpoint() *CompletedCheckpoint {
	keyed := func(index int, states ...string) OperatorSubtaskState {
		h := keyedHandle(index, 2, 128)
		for _, name := range states {
			h.States = append(h.States, StateMeta{Name: name, Kind: "value", KeySchema: "key/1:string"})
		}
		return OperatorSubtaskState{UID: "sums", Keyed: []KeyedStateHandle{h}}
	}
	c := checkpointOf(
		OperatorState{UID: "flights", Parallelism: 2, MaxParallelism: 128, Subtasks: make([]OperatorSubtaskState, 2)},
		OperatorState{UID: "sums", Parallelism: 2, MaxParallelism: 128, Subtasks: []OperatorSubtaskState{keyed(0, "a", "b"), keyed(1, "a", "b")}},
		OperatorState{UID: "map", Parallelism: 1, MaxParallelism: 128, Subtasks: make([]OperatorSubtaskState, 1)},
		OperatorState{UID: "out", Parallelism: 1, MaxParallelism: 128, Subtasks: []OperatorSubtaskState{
			{UID: "out", Lists: []OperatorStateHandle{{Name: "committables", Redistribution: SplitEvenly, Elements: []int64{1}}}},
		}},
	)
	c.Splits = []SplitList{{UID: "flights", Splits: []Split{{Data: []byte("x")}}}}
	return c
}

func TestCompare(t *testing.T) {
	got := Compare(comparedCheckpoint(), []OperatorTarget{{UID: "flights", Parallelism: 3}, {UID: "filter", Parallelism: 3}, {UID: "sums", Parallelism: 4}}, nil)
	want := []StateMatch{
		{UID: "flights", State: "splits", Kind: SplitsKind, Match: Matches, OldParallelism: 2, NewParallelism: 3},
		{UID: "filter", State: "", Kind: "", Match: New, OldParallelism: 0, NewParallelism: 3},
		{UID: "sums", State: "a", Kind: "value", Match: Matches, OldParallelism: 2, NewParallelism: 4},
		{UID: "sums", State: "b", Kind: "value", Match: Matches, OldParallelism: 2, NewParallelism: 4},
		{UID: "out", State: "committables", Kind: "list", Match: Dropped, OldParallelism: 1, NewParallelism: 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = Compare(nil, []OperatorTarget{{UID: "flights", Parallelism: 3}}, nil)
	if want := []StateMatch{{UID: "flights", State: "", Kind: "", Match: New, OldParallelism: 0, NewParallelism: 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("from nothing: got %v, want %v", got, want)
	}
}

func TestLostStateIsNamedAndLeftOnlyOnDemand(t *testing.T) {
	c := comparedCheckpoint()
	targets := []OperatorTarget{{UID: "other", Parallelism: 1}, {UID: "map", Parallelism: 1}}
	_, err := Reassign(c, targets, 128)
	if err == nil || !strings.Contains(err.Error(), `operators "sums", "out", "flights", which`) {
		t.Errorf("error is %v", err)
	}
	kept := WithoutLostState(c, targets)
	if len(kept.Operators) != 1 || kept.Operators[0].UID != "map" || len(kept.Splits) != 0 || len(c.Operators) != 4 {
		t.Errorf("kept %+v of %+v", kept, c)
	}
	if _, err := Reassign(kept, targets, 128); err != nil {
		t.Error(err)
	}
	all := []OperatorTarget{{UID: "flights", Parallelism: 1}, {UID: "sums", Parallelism: 1}, {UID: "out", Parallelism: 1}}
	if same := WithoutLostState(c, all); same != c {
		t.Error("nothing is lost, and the checkpoint was changed")
	}
}

func TestKeysOfAnotherTypeAreRefused(t *testing.T) {
	c := comparedCheckpoint()
	for program, want := range map[string]string{
		"": "", "key/1:string": "", "key/1:int64": `operator "sums": checkpoint 7 has state "a" with keys key/1:string, the program has key/1:int64`,
	} {
		err := CheckKeys(c, func(ids.OperatorUID) string { return program })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("keys %q: %v, want %q", program, err, want)
		}
	}
}

// Of a described operator every state is compared by its name.
func TestStatesOfADescribedOperatorAreCompared(t *testing.T) {
	c := comparedCheckpoint()
	target := func(states ...StateMeta) []OperatorTarget {
		return []OperatorTarget{{UID: "flights", Parallelism: 1}, {UID: "out", Parallelism: 1}, {UID: "sums", Parallelism: 2, Described: true, States: states}}
	}
	meta := func(name, kind, schema string) StateMeta {
		return StateMeta{Name: name, Kind: kind, Codec: "c", Schema: schema, KeySchema: "key/1:string"}
	}
	schemas := func(_, _, _, schema string) ([]string, error) {
		switch schema {
		case "wider":
			return []string{"widened it"}, nil
		case "other":
			return nil, errors.New("it was a number")
		}
		return nil, nil
	}
	for i := range c.Operators[1].Subtasks {
		for j := range c.Operators[1].Subtasks[i].Keyed[0].States {
			c.Operators[1].Subtasks[i].Keyed[0].States[j].Codec = "c"
		}
	}
	// What an operator has without registering it is neither compared nor lost.
	own := []OperatorStateHandle{{Name: WatermarkList, Redistribution: Union}, {Name: describingList, Redistribution: Union}}
	c.Operators[1].Subtasks[0].Lists = append(c.Operators[1].Subtasks[0].Lists, own...)
	for name, test := range map[string]struct {
		states []StateMeta
		want   []StateMatch
	}{
		"same and dropped": {[]StateMeta{meta("a", "value", "same")}, []StateMatch{{State: "a", Match: Matches}, {State: "b", Match: Dropped}}},
		"changed": {[]StateMeta{meta("a", "value", "wider"), meta("b", "value", "other"), meta("c", "list", "")}, []StateMatch{
			{State: "a", Match: Migrated, Changes: []string{"widened it"}}, {State: "b", Match: Incompatible, Changes: []string{"it was a number"}}, {State: "c", Match: New},
		}},
		"kind": {[]StateMeta{meta("a", "list", ""), meta("b", "value", "")}, []StateMatch{
			{State: "a", Match: Incompatible, Changes: []string{"stored as value, the program has list"}}, {State: "b", Match: Matches},
		}},
	} {
		got := Compare(c, target(test.states...), schemas)[2:]
		for i := range got {
			got[i] = StateMatch{State: got[i].State, Match: got[i].Match, Changes: got[i].Changes}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got  %+v, want %+v", name, got, test.want)
		}
	}
	if err := CheckStates(c, target(meta("a", "value", "other"), meta("b", "value", "")), schemas); err == nil || !strings.Contains(err.Error(), `operator "sums": state "a" of checkpoint 7: it was a number`) {
		t.Errorf("error is %v", err)
	}
	// What is not registered is refused, or marked for those who restore.
	dropping := target(meta("a", "value", ""))
	dropping = append(dropping, OperatorTarget{UID: "map", Parallelism: 1})
	if _, err := Reassign(c, dropping, 128); err == nil || !strings.Contains(err.Error(), `state "b" of operator "sums", which the program does not register`) {
		t.Errorf("error is %v", err)
	}
	if lost := LostStates(c, dropping); !reflect.DeepEqual(lost, []string{"sums/b"}) {
		t.Errorf("lost are %v", lost)
	}
	kept := WithoutLostState(c, dropping)
	if _, err := Reassign(kept, dropping, 128); err != nil {
		t.Error(err)
	}
	if marked := kept.Operators[1].Subtasks[1].Keyed[0].States; marked[0].Kind != "value" || marked[1].Kind != DroppedKind {
		t.Errorf("states are %+v", marked)
	}
	if lists := kept.Operators[1].Subtasks[0].Lists; !reflect.DeepEqual(lists, own) {
		t.Errorf("lists are %+v", lists)
	}
	if c.Operators[1].Subtasks[1].Keyed[0].States[1].Kind != "value" {
		t.Error("the checkpoint itself was changed")
	}
}

// TestTheRuntimesListsAreNoStatesOfTheProgram: a job with timers stores the
// watermark beside what it registers, and can be restored.
func TestTheRuntimesListsAreNoStatesOfTheProgram(t *testing.T) {
	lists := func() []OperatorStateHandle {
		return []OperatorStateHandle{
			{Name: WatermarkList, Redistribution: Union, Elements: []int64{8}},
			{Name: describingList, Redistribution: Union, Elements: []int64{1}},
			{Name: "mine", Redistribution: Union, Elements: []int64{1}},
		}
	}
	c := &CompletedCheckpoint{ID: 7, Operators: []OperatorState{
		{UID: "counts", Parallelism: 1, MaxParallelism: 128, Subtasks: []OperatorSubtaskState{{UID: "counts", Lists: lists()}}},
	}}
	mine := StateMeta{Name: "mine", Kind: ListKind}
	is := []OperatorTarget{{UID: "counts", Parallelism: 1, Described: true, States: []StateMeta{mine}}}
	states, err := Reassign(c, is, 128)
	if err != nil {
		t.Fatal(err)
	}
	if got := states[0].Subtasks[0].Lists; len(got) != 3 {
		t.Errorf("lists %+v are restored, want all three", got)
	}
	if got := Compare(c, is, nil); len(got) != 1 || got[0].State != "mine" || got[0].Match != Matches {
		t.Errorf("the comparison is %+v, want the one state of the program", got)
	}
	dropping := []OperatorTarget{{UID: "counts", Parallelism: 1, Described: true}}
	if lost := LostStates(c, dropping); !reflect.DeepEqual(lost, []string{"counts/mine"}) {
		t.Errorf("lost are %v", lost)
	}
	if got := WithoutLostState(c, dropping).Operators[0].Subtasks[0].Lists; len(got) != 2 {
		t.Errorf("without what is lost there are %+v, want those of the runtime", got)
	}
}

// operatorStates is a checkpoint of an operator whose subtasks have two lists
// and, in subtask 0, two broadcast maps.
func operatorStates() *CompletedCheckpoint {
	broadcast := func(name string) StateMeta {
		return StateMeta{Name: name, Kind: BroadcastKind, Codec: "c", Schema: name, KeySchema: "key/1:struct{Key:bool,User:string}"}
	}
	subtask := func(lists ...OperatorStateHandle) OperatorSubtaskState {
		for _, name := range []string{"list/legs", "list/empty"} {
			lists = append(lists, OperatorStateHandle{
				Name: name, Redistribution: Union, States: []StateMeta{{Name: name, Kind: ListKind, Codec: "c", Schema: name}},
			})
		}
		lists = append(lists, OperatorStateHandle{Name: describingList, Redistribution: Union, Elements: []int64{1}})
		return OperatorSubtaskState{UID: "alarms", Lists: lists}
	}
	maps := OperatorStateHandle{Name: broadcastList, Redistribution: Union, Elements: []int64{1}, States: []StateMeta{broadcast("limits"), broadcast("flags")}}
	return &CompletedCheckpoint{ID: 7, Operators: []OperatorState{
		{UID: "alarms", Parallelism: 2, MaxParallelism: 128, Subtasks: []OperatorSubtaskState{subtask(maps), subtask()}},
	}}
}

// alarms is the operator of operatorStates with the states that keep accepts,
// all of them of another schema.
func alarms(schema string, keep func(name string) bool) []OperatorTarget {
	states, _, _ := operatorStates().statesOf("alarms")
	t := OperatorTarget{UID: "alarms", Parallelism: 2, Described: true}
	for _, s := range states {
		if s.Schema += schema; keep(s.Name) {
			t.States = append(t.States, s)
		}
	}
	return []OperatorTarget{t}
}

func all(string) bool { return true }

// Lists and broadcast maps are compared by their schemas as keyed states are.
func TestOperatorStatesAreCompared(t *testing.T) {
	schemas := func(_, stored, _, is string) ([]string, error) {
		switch is {
		case stored + " wider":
			return []string{"widened " + stored, "removed a field of " + stored}, nil
		case stored + " other":
			return nil, errors.New(stored + " was a number")
		}
		return nil, nil
	}
	names := []string{"limits", "flags", "list/legs", "list/empty"}
	for schema, want := range map[string]func(name string) StateMatch{
		"": func(string) StateMatch { return StateMatch{Match: Matches} },
		" wider": func(n string) StateMatch {
			return StateMatch{Match: Migrated, Changes: []string{"widened " + n, "removed a field of " + n}}
		},
		" other": func(n string) StateMatch {
			return StateMatch{Match: Incompatible, Changes: []string{n + " was a number"}}
		},
	} {
		got := Compare(operatorStates(), alarms(schema, all), schemas)
		if len(got) != len(names) {
			t.Fatalf("compared are %+v, want %v", got, names)
		}
		for i, name := range names {
			if w := want(name); got[i].State != name || got[i].Match != w.Match || !reflect.DeepEqual(got[i].Changes, w.Changes) {
				t.Errorf("schemas %q: %+v, want %+v of %s", schema, got[i], w, name)
			}
		}
	}
	for name, schema := range map[string]string{"limits": "limits", "list/legs": "list/legs"} {
		targets := alarms(" other", func(n string) bool { return n == name })
		err := CheckStates(operatorStates(), targets, schemas)
		if want := `operator "alarms": state "` + name + `" of checkpoint 7: ` + schema + " was a number"; err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	targets := alarms("", all)
	targets[0].States[0].KeySchema = "key/1:struct{Key:bool,User:int64}"
	if err := CheckStates(operatorStates(), targets, schemas); err == nil || !strings.Contains(err.Error(), `state "limits" of checkpoint 7: stored with keys`) {
		t.Errorf("other user keys: %v", err)
	}
}

// One of several broadcast maps, or a list, is dropped on the user's word alone.
func TestOneBroadcastMapIsDropped(t *testing.T) {
	kept := func(name string) bool { return name == "flags" || name == "list/empty" }
	for _, m := range Compare(operatorStates(), alarms("", kept), func(_, _, _, _ string) ([]string, error) { return nil, nil }) {
		if want := map[bool]Match{true: Matches, false: Dropped}[kept(m.State)]; m.Match != want {
			t.Errorf("%s of %s, want %s", m.Match, m.State, want)
		}
	}
	c := operatorStates()
	if _, err := Reassign(c, alarms("", kept), 128); err == nil || !strings.Contains(err.Error(), `has state "limits" of operator "alarms", which the program does not register`) {
		t.Errorf("error is %v", err)
	}
	if lost := LostStates(c, alarms("", kept)); !reflect.DeepEqual(lost, []string{"alarms/limits", "alarms/list/legs"}) {
		t.Errorf("lost are %v", lost)
	}
	states, err := Reassign(WithoutLostState(c, alarms("", kept)), alarms("", kept), 128)
	if err != nil {
		t.Fatal(err)
	}
	// Every subtask is told of the dropped map, and gets the list that is left.
	for i, s := range states[0].Subtasks {
		var got []string
		for _, l := range s.Lists {
			for _, m := range l.States {
				got = append(got, m.Kind+" "+m.Name)
			}
			got = append(got, l.Name)
		}
		if want := []string{"dropped limits", broadcastList, "list/empty", "list/empty", describingList, describingList}; !reflect.DeepEqual(got, want) {
			t.Errorf("subtask %d gets %q, want %q", i, got, want)
		}
	}
	if !reflect.DeepEqual(c, operatorStates()) {
		t.Error("the checkpoint itself was changed")
	}
	// Without any of the maps nothing of them is left to read.
	list := alarms("", func(name string) bool { return strings.HasPrefix(name, "list/") })
	if lists := WithoutLostState(c, list).Operators[0].Subtasks[0].Lists; len(lists) != 3 || lists[0].Name != "list/legs" {
		t.Errorf("lists are %+v", lists)
	}
}

// What versions stored that did not describe lists is matched by the lists'
// names: the subtasks compare it.
func TestOperatorStatesWithoutDescriptionMatch(t *testing.T) {
	c := operatorStates()
	for i := range c.Operators[0].Subtasks {
		lists := c.Operators[0].Subtasks[i].Lists
		for j := range lists {
			lists[j].States = nil
		}
	}
	var got []string
	for _, m := range Compare(c, alarms(" other", all), nil) {
		got = append(got, m.State+" "+m.Match.String())
	}
	if want := []string{"state/broadcast matches", "list/legs matches", "list/empty matches"}; !reflect.DeepEqual(got, want) {
		t.Errorf("compared as %q, want %q", got, want)
	}
	if states, err := Reassign(c, alarms(" other", all), 128); err != nil || len(states[0].Subtasks[1].Lists) != 7 {
		t.Errorf("%+v, %v", states, err)
	}
	lists := alarms("", func(name string) bool { return strings.HasPrefix(name, "list/") })
	if lost := LostStates(c, lists); !reflect.DeepEqual(lost, []string{"alarms/state/broadcast"}) {
		t.Errorf("lost without any map are %v", lost)
	}
}

// States of different kinds may have one name, also that of a list of the runtime's.
func TestKindsOfStateHaveTheirOwnNames(t *testing.T) {
	for _, name := range []string{WatermarkList, describingList, "list/x"} {
		keyed := StateMeta{Name: name, Kind: "list", Codec: "c", Schema: "keyed", KeySchema: "key/1:string"}
		broadcast := StateMeta{Name: name, Kind: BroadcastKind, Codec: "c", Schema: "broadcast", KeySchema: "key/1:struct{Key:bool,User:string}"}
		list := StateMeta{Name: "list/" + name, Kind: ListKind, Codec: "c", Schema: "list"}
		h := keyedHandle(0, 1, 128)
		h.States = []StateMeta{keyed}
		c := &CompletedCheckpoint{ID: 7, Operators: []OperatorState{{UID: "op", Parallelism: 1, MaxParallelism: 128, Subtasks: []OperatorSubtaskState{{
			UID: "op", Keyed: []KeyedStateHandle{h}, Lists: []OperatorStateHandle{
				{Name: WatermarkList, Redistribution: Union, Elements: []int64{8}},
				{Name: list.Name, Redistribution: Union, States: []StateMeta{list}},
				{Name: broadcastList, Redistribution: Union, States: []StateMeta{broadcast}},
			},
		}}}}}
		same := func(_, stored, _, is string) ([]string, error) {
			if stored != is {
				return nil, errors.New("compared with " + is)
			}
			return nil, nil
		}
		target := []OperatorTarget{{UID: "op", Parallelism: 1, Described: true, States: []StateMeta{broadcast, list, keyed}}}
		got := Compare(c, target, same)
		if len(got) != 3 || got[0].Match != Matches || got[1].Match != Matches || got[2].Match != Matches {
			t.Errorf("%s: compared as %+v", name, got)
		}
		target[0].States = []StateMeta{broadcast, list}
		if lost := LostStates(c, target); !reflect.DeepEqual(lost, []string{"op/" + name}) {
			t.Errorf("%s: lost are %v", name, lost)
		}
		kept := WithoutLostState(c, target).Operators[0].Subtasks[0]
		if kept.Keyed[0].States[0].Kind != DroppedKind || len(kept.Lists) != 3 || len(droppedOf(kept.Lists[2].States)) != 0 {
			t.Errorf("%s: left are %+v", name, kept)
		}
	}
}
