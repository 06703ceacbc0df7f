package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
)

// fakeStore fails its PutIf and Read calls by script, in order; a call
// without an entry passes.
type fakeStore struct {
	*faulty.Store
	putIfs, reads []faulty.Fault
}

func newFakeStore(inner objectstore.Store) *fakeStore {
	f := &fakeStore{}
	f.Store = faulty.New(inner, func(c faulty.Call) faulty.Fault {
		var script *[]faulty.Fault
		switch c.Op {
		case faulty.PutIf:
			script = &f.putIfs
		case faulty.Read:
			script = &f.reads
		case faulty.Put, faulty.Open, faulty.List, faulty.Delete, faulty.DiscardStaged, faulty.Check:
		}
		if script == nil || len(*script) == 0 {
			return faulty.Fault{}
		}
		next := (*script)[0]
		*script = (*script)[1:]
		return next
	}, nil)
	return f
}

var (
	passes       = faulty.Fault{}
	lostRequest  = faulty.Fault{Before: objectstore.ErrUnknownOutcome}
	lostReply    = faulty.Fault{After: objectstore.ErrUnknownOutcome}
	denied       = faulty.Fault{Before: objectstore.ErrDenied}
	fails        = faulty.Fault{Before: faulty.ErrInjected}
	conflict     = faulty.Fault{Before: objectstore.ErrPrecondition}
	otherContent = "nonce-other"
)

func repeat(fault faulty.Fault, times int) []faulty.Fault {
	var out []faulty.Fault
	for range times {
		out = append(out, fault)
	}
	return out
}

func next(prev JobRecord, nonce string) JobRecord {
	prev.Nonce = nonce
	prev.Restarts++
	return prev
}

// I10: the outcome of a swap is what the record says afterwards, whatever the
// store answered.
func TestSwapOutcomes(t *testing.T) {
	for _, test := range []struct {
		name   string
		putIfs []faulty.Fault
		reads  []faulty.Fault
		other  bool // somebody else swaps first
		want   SwapOutcome
		stored string // nonce in the end
	}{
		{name: "plain", want: Swapped, stored: "nonce-2"},
		{name: "reply lost", putIfs: []faulty.Fault{lostReply}, want: Swapped, stored: "nonce-2"},
		{name: "request lost", putIfs: []faulty.Fault{lostRequest}, want: Swapped, stored: "nonce-2"},
		{name: "request lost always", putIfs: repeat(lostRequest, swapAttemptsMax), want: Unknown, stored: "nonce-1"},
		{name: "request lost, then reply", putIfs: []faulty.Fault{lostRequest, lostReply}, want: Swapped, stored: "nonce-2"},
		{name: "reply lost, read fails", putIfs: []faulty.Fault{lostReply}, reads: []faulty.Fault{fails}, want: Unknown, stored: "nonce-2"},
		{name: "request lost, read fails", putIfs: []faulty.Fault{lostRequest}, reads: []faulty.Fault{fails}, want: Unknown, stored: "nonce-1"},
		{name: "request lost, read denied", putIfs: []faulty.Fault{lostRequest}, reads: []faulty.Fault{denied}, want: Unknown, stored: "nonce-1"},
		{name: "denied", putIfs: []faulty.Fault{denied}, want: NotWritten, stored: "nonce-1"},
		{name: "request lost, then denied", putIfs: []faulty.Fault{lostRequest, denied}, want: Unknown, stored: "nonce-1"},
		{name: "passing conflict", putIfs: []faulty.Fault{conflict, passes}, want: Swapped, stored: "nonce-2"},
		{name: "conflict always", putIfs: repeat(conflict, swapAttemptsMax), want: NotWritten, stored: "nonce-1"},
		{name: "conflict, read fails", putIfs: []faulty.Fault{conflict}, reads: []faulty.Fault{fails}, want: Unknown, stored: "nonce-1"},
		{name: "lost to another", other: true, want: Lost, stored: otherContent},
		{name: "lost to another, reply lost", other: true, putIfs: []faulty.Fault{lostRequest}, want: Lost, stored: otherContent},
		{name: "lost to another, read fails", other: true, reads: []faulty.Fault{fails}, want: Unknown, stored: otherContent},
	} {
		t.Run(test.name, func(t *testing.T) {
			inner := memory.New(memoryRoot)
			plain, fake := NewClusterStore(inner), newFakeStore(inner)
			created := plain.CreateRecord(t.Context(), testRecord())
			if created.Outcome != Swapped {
				t.Fatal(created.Err)
			}
			if test.other {
				if result := plain.SwapRecord(t.Context(), created.Record, next(created.Record.JobRecord, otherContent)); result.Outcome != Swapped {
					t.Fatal(result.Err)
				}
			}
			fake.putIfs, fake.reads = test.putIfs, test.reads
			result := NewClusterStore(fake).SwapRecord(t.Context(), created.Record, next(created.Record.JobRecord, "nonce-2"))
			if result.Outcome != test.want || (result.Err != nil) != (test.want == NotWritten || test.want == Unknown) {
				t.Errorf("outcome %v, error %v, want %v", result.Outcome, result.Err, test.want)
			}
			stored, err := plain.ReadRecord(t.Context(), jobA)
			if err != nil || stored.Nonce != test.stored {
				t.Errorf("nonce %s is stored, error %v, want %s", stored.Nonce, err, test.stored)
			}
			if test.want == Swapped || test.want == Lost {
				mustEqual(t, result.Record, stored)
			}
			if test.want == Unknown && !test.other {
				// The same call again finds out.
				fake.putIfs, fake.reads = nil, nil
				result = NewClusterStore(fake).SwapRecord(t.Context(), created.Record, next(created.Record.JobRecord, "nonce-2"))
				if result.Outcome != Swapped {
					t.Errorf("repeated: outcome %v, error %v", result.Outcome, result.Err)
				}
			}
		})
	}
}

func TestCreateOutcomes(t *testing.T) {
	for _, test := range []struct {
		name   string
		putIfs []faulty.Fault
		reads  []faulty.Fault
		other  bool
		want   SwapOutcome
	}{
		{name: "plain", want: Swapped},
		{name: "reply lost", putIfs: []faulty.Fault{lostReply}, want: Swapped},
		{name: "request lost", putIfs: []faulty.Fault{lostRequest}, want: Swapped},
		{name: "request lost always", putIfs: repeat(lostRequest, swapAttemptsMax), want: Unknown},
		{name: "read fails", putIfs: []faulty.Fault{lostReply}, reads: []faulty.Fault{fails}, want: Unknown},
		{name: "denied", putIfs: []faulty.Fault{denied}, want: NotWritten},
		{name: "exists", other: true, want: Lost},
	} {
		t.Run(test.name, func(t *testing.T) {
			inner := memory.New(memoryRoot)
			plain, fake := NewClusterStore(inner), newFakeStore(inner)
			if test.other {
				if result := plain.CreateRecord(t.Context(), next(testRecord(), otherContent)); result.Outcome != Swapped {
					t.Fatal(result.Err)
				}
			}
			fake.putIfs, fake.reads = test.putIfs, test.reads
			result := NewClusterStore(fake).CreateRecord(t.Context(), testRecord())
			if result.Outcome != test.want {
				t.Errorf("outcome %v, error %v, want %v", result.Outcome, result.Err, test.want)
			}
			if test.want == Lost && result.Record.Nonce != otherContent {
				t.Errorf("lost to nonce %s", result.Record.Nonce)
			}
		})
	}
}

func TestSwapRefusesToGoBack(t *testing.T) {
	c := NewClusterStore(memory.New(memoryRoot))
	created := c.CreateRecord(t.Context(), testRecord())
	for name, spoil := range map[string]func(*JobRecord){
		"I8: token":              func(r *JobRecord) { r.Token-- },
		"I6: checkpoint IDs":     func(r *JobRecord) { r.NextCheckpointBlock-- },
		"same nonce":             func(r *JobRecord) { r.Nonce = created.Record.Nonce },
		"no nonce":               func(r *JobRecord) { r.Nonce = "" },
		"another job":            func(r *JobRecord) { r.Job = jobB },
		"reference without name": func(r *JobRecord) { r.Retained = []CheckpointRef{{ID: 1}} },
	} {
		record := next(created.Record.JobRecord, "nonce-2")
		spoil(&record)
		if result := c.SwapRecord(t.Context(), created.Record, record); result.Outcome != NotWritten || result.Err == nil {
			t.Errorf("%s: outcome %v, error %v", name, result.Outcome, result.Err)
		}
	}
	if err := c.DeleteJob(t.Context(), jobA); err != nil {
		t.Fatal(err)
	}
	if result := c.SwapRecord(t.Context(), created.Record, next(created.Record.JobRecord, "nonce-2")); result.Outcome != NotWritten || !errors.Is(result.Err, objectstore.ErrNotExist) {
		t.Errorf("deleted: outcome %v, error %v", result.Outcome, result.Err)
	}
}

// I8: of JobManagers that swap at once, one wins each round.
func TestOneSwapperWinsEachRound(t *testing.T) {
	const swappers, rounds = 16, 30
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		var current VersionedRecord
		for round := range rounds {
			results := make([]SwapResult, swappers)
			var wait sync.WaitGroup
			for i := range results {
				record := testRecord()
				record.Token = ids.FencingToken(round + 1)
				record.Nonce = fmt.Sprintf("round %d swapper %d", round, i)
				wait.Go(func() {
					if round == 0 {
						results[i] = c.CreateRecord(t.Context(), record)
					} else {
						results[i] = c.SwapRecord(t.Context(), current, record)
					}
				})
			}
			wait.Wait()
			stored, err := c.ReadRecord(t.Context(), jobA)
			if err != nil {
				t.Fatal(err)
			}
			winners := 0
			for i, result := range results {
				switch {
				case result.Outcome == Swapped && stored.Nonce == fmt.Sprintf("round %d swapper %d", round, i):
					winners++
				case result.Outcome == Lost && result.Record.Nonce == stored.Nonce:
				default:
					t.Errorf("round %d: swapper %d has outcome %v, error %v, and %s is stored", round, i, result.Outcome, result.Err, stored.Nonce)
				}
			}
			if winners != 1 {
				t.Fatalf("round %d has %d winners", round, winners)
			}
			current = stored
		}
	})
}

func TestJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 0 {
			t.Errorf("jobs %v, error %v", jobs, err)
		}
		for _, job := range []ids.JobID{jobA, jobB} {
			for range 2 {
				if err := c.PutJob(t.Context(), job, []byte("job "+job)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.PutJob(t.Context(), job, []byte("another")); !errors.Is(err, objectstore.ErrPrecondition) {
				t.Errorf("a job was changed: %v", err)
			}
		}
		// A job without a record was never accepted.
		if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 0 {
			t.Errorf("jobs %v, error %v", jobs, err)
		}
		for _, job := range []ids.JobID{jobA, jobB} {
			record := testRecord()
			record.Job = job
			if result := c.CreateRecord(t.Context(), record); result.Outcome != Swapped {
				t.Fatal(result.Err)
			}
		}
		jobs, err := c.Jobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, jobs, []ids.JobID{jobB, jobA})
		content, err := c.ReadJob(t.Context(), jobA)
		if err != nil || string(content) != "job "+string(jobA) {
			t.Errorf("job is %q, error %v", content, err)
		}
		for range 2 {
			if err := c.DeleteJob(t.Context(), jobA); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.ReadJob(t.Context(), jobA); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("deleted job: %v", err)
		}
		if _, err := c.ReadRecord(t.Context(), jobA); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("deleted record: %v", err)
		}
		mustHave(t, open, root, "jobs/"+string(jobB)+"/job", "jobs/"+string(jobB)+"/record")
	})
}

// I4: what was never accepted does not stay behind, and what is needed does.
func TestClusterSweep(t *testing.T) {
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		for _, job := range []ids.JobID{jobA, jobB} {
			if err := c.PutJob(t.Context(), job, []byte("job")); err != nil {
				t.Fatal(err)
			}
		}
		if result := c.CreateRecord(t.Context(), testRecord()); result.Outcome != Swapped {
			t.Fatal(result.Err)
		}
		for sum, content := range map[string]string{hello: "hello", empty: ""} {
			if err := c.PutArtifact(t.Context(), sum, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"artifacts/notes", "jobs/notes", "jobs/" + string(jobB) + "/notes"} {
			if _, err := store.PutIf(t.Context(), name, nil, objectstore.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		if deleted, err := c.Sweep(t.Context(), []string{hello}); err != nil || deleted != 2 {
			t.Errorf("deleted %d, error %v, want 2", deleted, err)
		}
		mustHave(t, open, root, "artifacts/"+hello, "artifacts/notes", "jobs/"+string(jobB)+"/notes",
			"jobs/"+string(jobA)+"/job", "jobs/"+string(jobA)+"/record", "jobs/notes")
	})
}

// I9: an error while reading a record is not the absence of one.
func TestReadRecordErrors(t *testing.T) {
	inner := memory.New(memoryRoot)
	fake := newFakeStore(inner)
	c := NewClusterStore(fake)
	if result := c.CreateRecord(t.Context(), testRecord()); result.Outcome != Swapped {
		t.Fatal(result.Err)
	}
	for _, fault := range []faulty.Fault{denied, fails} {
		fake.reads = []faulty.Fault{fault}
		if _, err := c.ReadRecord(t.Context(), jobA); !errors.Is(err, fault.Before) || errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("read: %v", err)
		}
	}
	content, _, err := inner.Read(context.Background(), jobObject(jobA, recordName), recordSizeMax)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inner.PutIf(context.Background(), jobObject(jobB, recordName), content, objectstore.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadRecord(t.Context(), jobB); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), string(jobA)) {
		t.Errorf("record of another job: %v", err)
	}
}
