package jobmanager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// savepointFor writes a savepoint of an operator "old" beside the source and
// the sink of spec, and returns its path.
func (r *rig) savepointFor(maxParallelism int) string {
	r.t.Helper()
	loc := checkpointstore.SavepointLocation(fmt.Sprintf("/sp/%d", maxParallelism), "ffffffffffffffffffffffffffffffff", 7)
	c := &snapshot.CompletedCheckpoint{Job: "ffffffffffffffffffffffffffffffff", ID: 7, Kind: snapshot.Savepoint}
	for _, uid := range []ids.OperatorUID{"source", "sink", "old"} {
		list := snapshot.OperatorStateHandle{Name: "l", Redistribution: snapshot.Union,
			Handle: snapshot.StateHandle{Inline: []byte("x"), Size: 1}, Elements: []int64{1}}
		state := snapshot.OperatorSubtaskState{UID: uid, Lists: []snapshot.OperatorStateHandle{list}}
		if uid == "sink" {
			state.Keyed = []snapshot.KeyedStateHandle{{
				Range: keygroup.RangeOf(0, 1, maxParallelism), Offsets: make([]int64, maxParallelism+1),
				States: []snapshot.StateMeta{{Name: "s", Kind: "value", KeySchema: "key/1:string"}},
			}}
		}
		c.Operators = append(c.Operators, snapshot.OperatorState{UID: uid, Parallelism: 1, MaxParallelism: maxParallelism,
			Subtasks: []snapshot.OperatorSubtaskState{state}})
	}
	path, err := checkpointstore.New(r.options.OpenStore(nil)).PersistMetadata(r.t.Context(), loc, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return path
}

func TestPlanAndSubmissionAgreeOnWhatIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		s := spec("job", 2)
		s.RestoreFrom = r.savepointFor(128)
		plan, err := r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, st := range plan.GetStates() {
			lines = append(lines, strings.Join([]string{st.GetOperator(), st.GetState(), st.GetKind(), st.GetMatch()}, " "))
		}
		if got := strings.Join(lines, ", "); got != "source l list matches, sink s value matches, sink l list matches, old l list dropped" {
			t.Errorf("plan is %s", got)
		}
		if plan.GetKind() != "savepoint" || plan.GetCheckpoint() != 7 || !strings.Contains(plan.GetProblem(), `operator "old"`) {
			t.Errorf("plan is %v", plan)
		}
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || err.Error() != plan.GetProblem() {
			t.Errorf("submission: %v, want %s", err, plan.GetProblem())
		}
		if known, err := r.store.Jobs(t.Context()); err != nil || len(known) != 0 {
			t.Errorf("records: %v, %v", known, err)
		}
		s.AllowNonRestoredState = true
		if plan, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s}); err != nil || plan.GetProblem() != "" {
			t.Errorf("plan is %v, %v", plan, err)
		}
		id, err := r.submit(s)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status := r.status(id); status.GetStatus() != "CREATED" || status.GetRestoredCheckpoint() != 7 {
			t.Errorf("the job is %v", status)
		}
	})
}

func TestPlanOfWhatCannotBeRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		s := spec("job", 2)
		plan, err := r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil || len(plan.GetStates()) != 2 || plan.GetStates()[0].GetMatch() != "new" || plan.GetKind() != "" {
			t.Errorf("plan of a start from nothing: %v, %v", plan, err)
		}
		s.RestoreFrom, s.AllowNonRestoredState = r.savepointFor(64), true
		plan, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil || !strings.Contains(plan.GetProblem(), "max parallelism 64, the job has 128") {
			t.Errorf("plan with another max parallelism: %v, %v", plan, err)
		}
		s.RestoreFrom, s.Graph.Operators[1].KeyType = r.savepointFor(128), "key/1:int64"
		plan, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil || !strings.Contains(plan.GetProblem(), `state "s" with keys key/1:string, the program has key/1:int64`) {
			t.Errorf("plan with another key type: %v, %v", plan, err)
		}
		s.RestoreFrom = "/none"
		if _, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s}); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("plan from nowhere: %v", err)
		}
		if _, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{}); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("plan of nothing: %v", err)
		}
	})
}

// A state that is read as another type is migrated, with the changes in the
// table; one that cannot be is refused, with the types.
func TestPlanSaysWhatIsMigrated(t *testing.T) {
	stored := snapshot.StateMeta{Name: "s", Kind: "value", Codec: avro.Name, Schema: schemaOf[struct{ A int32 }](t), KeySchema: "key/1:string"}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		loc := checkpointstore.SavepointLocation("/sp", "ffffffffffffffffffffffffffffffff", 7)
		c := &snapshot.CompletedCheckpoint{Job: "ffffffffffffffffffffffffffffffff", ID: 7, Kind: snapshot.Savepoint}
		c.Operators = []snapshot.OperatorState{{UID: "sink", Parallelism: 1, MaxParallelism: 128, Subtasks: []snapshot.OperatorSubtaskState{{
			UID: "sink", Keyed: []snapshot.KeyedStateHandle{{Range: keygroup.RangeOf(0, 1, 128), Offsets: make([]int64, 129), States: []snapshot.StateMeta{stored}}},
		}}}}
		path, err := checkpointstore.New(r.options.OpenStore(nil)).PersistMetadata(t.Context(), loc, c)
		if err != nil {
			t.Fatal(err)
		}
		s := spec("job", 2)
		s.RestoreFrom = path
		declare := func(schema string) {
			s.Graph.Operators[1].DescribesStates = true
			s.Graph.Operators[1].States = []*pb.DeclaredState{{Name: "s", Kind: "value", Codec: avro.Name, Schema: schema, KeySchema: "key/1:string"}}
		}
		declare(schemaOf[struct {
			A int64
			B string
		}](t))
		plan, err := r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil || plan.GetProblem() != "" {
			t.Fatalf("%v, %v", plan, err)
		}
		line := plan.GetStates()[len(plan.GetStates())-1]
		if line.GetMatch() != "migrated" || !slices.Equal(line.GetChanges(), []string{"widened A from int32 to int64", "added B string"}) {
			t.Errorf("the line is %v", line)
		}
		declare(schemaOf[struct{ A string }](t))
		if plan, err = r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s}); err != nil ||
			!strings.Contains(plan.GetProblem(), `operator "sink": state "s" of checkpoint 7: field A was int32 and is string`) {
			t.Errorf("plan is %v, %v", plan, err)
		}
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || err.Error() != plan.GetProblem() {
			t.Errorf("submission: %v, want %s", err, plan.GetProblem())
		}
		declare(schemaOf[struct{ A int64 }](t))
		if _, err := r.submit(s); err != nil {
			t.Errorf("submission: %v", err)
		}
	})
}

// Lists and broadcast maps are compared as keyed state is, before anything starts.
func TestPlanComparesOperatorState(t *testing.T) {
	type old struct {
		A    int32
		Gone string
	}
	type wider struct {
		A    int64
		More bool
	}
	state := func(name, kind, schema string) *pb.DeclaredState {
		s := &pb.DeclaredState{Name: name, Kind: kind, Codec: avro.Name, Schema: schema}
		if kind == snapshot.BroadcastKind {
			s.KeySchema = "key/1:struct{Key:bool,User:string}"
		}
		return s
	}
	list := func(name string, states ...*pb.DeclaredState) snapshot.OperatorStateHandle {
		h := snapshot.OperatorStateHandle{Name: name, Redistribution: snapshot.Union,
			Handle: snapshot.StateHandle{Inline: []byte("x"), Size: 1}, Elements: []int64{1}}
		for _, s := range states {
			h.States = append(h.States, snapshot.StateMeta{Name: s.GetName(), Kind: s.GetKind(), Codec: s.GetCodec(), Schema: s.GetSchema(), KeySchema: s.GetKeySchema()})
		}
		return h
	}
	is := schemaOf[old](t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		c := &snapshot.CompletedCheckpoint{Job: "ffffffffffffffffffffffffffffffff", ID: 7, Kind: snapshot.Savepoint}
		c.Operators = []snapshot.OperatorState{{UID: "sink", Parallelism: 1, MaxParallelism: 128, Subtasks: []snapshot.OperatorSubtaskState{{
			UID: "sink", Lists: []snapshot.OperatorStateHandle{
				list("list/legs", state("list/legs", snapshot.ListKind, is)),
				list("state/broadcast", state("limits", snapshot.BroadcastKind, is), state("flags", snapshot.BroadcastKind, is)),
			},
		}}}}
		loc := checkpointstore.SavepointLocation("/sp", "ffffffffffffffffffffffffffffffff", 7)
		path, err := checkpointstore.New(r.options.OpenStore(nil)).PersistMetadata(t.Context(), loc, c)
		if err != nil {
			t.Fatal(err)
		}
		s := spec("job", 2)
		s.RestoreFrom = path
		s.Graph.Operators[1].DescribesStates = true
		plan := func(wantProblem string, states ...*pb.DeclaredState) map[string]*pb.RestoredState {
			t.Helper()
			s.Graph.Operators[1].States = states
			plan, err := r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
			if err != nil {
				t.Fatal(err)
			}
			if (plan.GetProblem() == "") != (wantProblem == "") || !strings.Contains(plan.GetProblem(), wantProblem) {
				t.Errorf("problem is %q, want %q", plan.GetProblem(), wantProblem)
			}
			lines := map[string]*pb.RestoredState{}
			for _, line := range plan.GetStates() {
				if line.GetOperator() == "sink" {
					lines[line.GetState()] = line
				}
			}
			return lines
		}
		legs, limits, flags := state("list/legs", snapshot.ListKind, is), state("limits", snapshot.BroadcastKind, is), state("flags", snapshot.BroadcastKind, is)
		newSchema, wrong := schemaOf[wider](t), schemaOf[struct{ A string }](t)
		lines := plan("", state("list/legs", snapshot.ListKind, newSchema), state("limits", snapshot.BroadcastKind, newSchema), flags)
		changes := []string{"widened A from int32 to int64", "removed Gone string", "added More bool"}
		for _, name := range []string{"list/legs", "limits"} {
			got := slices.Sorted(slices.Values(lines[name].GetChanges()))
			if lines[name].GetMatch() != "migrated" || !slices.Equal(got, slices.Sorted(slices.Values(changes))) {
				t.Errorf("%s is %v, want the changes %q", name, lines[name], changes)
			}
		}
		if lines["flags"].GetMatch() != "matches" || len(lines) != 3 {
			t.Errorf("lines are %v", lines)
		}
		plan(`operator "sink": state "list/legs" of checkpoint 7: field A was int32 and is string`, state("list/legs", snapshot.ListKind, wrong), limits, flags)
		plan(`operator "sink": state "flags" of checkpoint 7: field A was int32 and is string`, legs, limits, state("flags", snapshot.BroadcastKind, wrong))
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), `state "flags" of checkpoint 7`) {
			t.Errorf("submission: %v", err)
		}
		lines = plan(`state "flags" of operator "sink", which the program does not register`, legs, limits)
		if lines["flags"].GetMatch() != "dropped" || lines["limits"].GetMatch() != "matches" {
			t.Errorf("lines are %v", lines)
		}
		s.AllowNonRestoredState = true
		if lines = plan("", legs, limits); lines["flags"].GetMatch() != "dropped" {
			t.Errorf("lines are %v", lines)
		}
		if _, err := r.submit(s); err != nil {
			t.Errorf("submission: %v", err)
		}
	})
}

func schemaOf[T any](t *testing.T) string {
	t.Helper()
	c, err := avro.For[T]()
	if err != nil {
		t.Fatal(err)
	}
	return c.Schema()
}

func TestWhatALivingJobOwnsCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		s := spec("job", 2)
		s.RestoreFrom, s.AllowNonRestoredState, s.ClaimRestored = r.savepointFor(128), true, true
		first, err := r.submit(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), "belongs to job "+first+", which is CREATED") {
			t.Errorf("the second claim: %v", err)
		}
		plan, err := r.PlanRestore(t.Context(), &pb.PlanRestoreRequest{Spec: s})
		if err != nil || !strings.Contains(plan.GetProblem(), "belongs to job "+first) {
			t.Errorf("plan of the second claim: %v, %v", plan, err)
		}
		if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: first}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// The first job had no checkpoint of its own, and so has not taken it over.
		if _, err := r.submit(s); err != nil {
			t.Errorf("the claim after the first job's end: %v", err)
		}
	})
}
