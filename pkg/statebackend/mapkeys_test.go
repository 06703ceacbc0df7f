package statebackend_test

import (
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

type airport struct {
	Country uint16
	Code    string
}

// TestKeysOfMapsAreTheOperators: a program is compared with what is stored
// before it starts, and maps are stored with another key than the operator's.
func TestKeysOfMapsAreTheOperators(t *testing.T) {
	stored, err := statebackend.NewMapKeys[airport, string]()
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := &snapshot.CompletedCheckpoint{ID: 7, Operators: []snapshot.OperatorState{{UID: "visits", Subtasks: []snapshot.OperatorSubtaskState{{
		Keyed: []snapshot.KeyedStateHandle{{States: []snapshot.StateMeta{
			{Name: "pages", Kind: string(statebackend.MapKind), KeySchema: stored.Both.Schema()},
		}}},
	}}}}}
	for program, want := range map[string]bool{
		schema[airport](t): true, schema[string](t): false, schema[uint16](t): false,
		schema[statebackend.MapKey[airport, uint16]](t): false,
	} {
		err := snapshot.CheckKeys(checkpoint, func(ids.OperatorUID) string { return program })
		if (err == nil) != want {
			t.Errorf("state with keys %s in a program with %s: %v", stored.Both.Schema(), program, err)
		}
	}
}

func schema[K comparable](t *testing.T) string {
	t.Helper()
	e, err := keygroup.NewEncoding[K]()
	if err != nil {
		t.Fatal(err)
	}
	return e.Schema()
}
