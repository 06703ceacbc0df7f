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
	if c.Operators[1].Subtasks[1].Keyed[0].States[1].Kind != "value" {
		t.Error("the checkpoint itself was changed")
	}
}
