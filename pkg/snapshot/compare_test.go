package snapshot

import (
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
	got := Compare(comparedCheckpoint(), []OperatorTarget{{"flights", 3}, {"filter", 3}, {"sums", 4}})
	want := []StateMatch{
		{"flights", "splits", SplitsKind, Matches, 2, 3},
		{"filter", "", "", New, 0, 3},
		{"sums", "a", "value", Matches, 2, 4},
		{"sums", "b", "value", Matches, 2, 4},
		{"out", "committables", "list", Dropped, 1, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = Compare(nil, []OperatorTarget{{"flights", 3}})
	if want := []StateMatch{{"flights", "", "", New, 0, 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("from nothing: got %v, want %v", got, want)
	}
}

func TestLostStateIsNamedAndLeftOnlyOnDemand(t *testing.T) {
	c := comparedCheckpoint()
	targets := []OperatorTarget{{"other", 1}, {"map", 1}}
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
	all := []OperatorTarget{{"flights", 1}, {"sums", 1}, {"out", 1}}
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
