package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/snapshot"
)

// deletions counts the deletions of a store that takes a second for each, and
// refuses those of names that end in bad.
type deletions struct {
	*faulty.Store
	sync.Mutex
	names         []string
	now, mostOnce int
	bad           string
}

func slowToDelete(inner objectstore.Store) *deletions {
	d := &deletions{}
	d.Store = faulty.New(inner, func(c faulty.Call) faulty.Fault {
		d.Lock()
		defer d.Unlock()
		switch {
		case c.Op != faulty.Delete:
			return faulty.Fault{}
		case d.bad != "" && strings.HasSuffix(c.Name, d.bad):
			return faulty.Fault{Before: objectstore.ErrDenied}
		}
		d.names = append(d.names, c.Name)
		d.now++
		d.mostOnce = max(d.mostOnce, d.now)
		return faulty.Fault{Delay: time.Second}
	}, func(ctx context.Context, _ faulty.Call, delay time.Duration) error {
		defer func() {
			d.Lock()
			defer d.Unlock()
			d.now--
		}()
		select {
		case <-time.After(delay):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return d
}

// privateFiles writes files of checkpoint 7 of job A.
func privateFiles(t *testing.T, root objectstore.Store, n int) []snapshot.StateHandle {
	t.Helper()
	handles := make([]snapshot.StateHandle, n)
	for i := range handles {
		handles[i] = snapshot.StateHandle{Name: fmt.Sprintf("chk-7/1.1-0.0.%d", i), Size: 1}
		if _, err := root.PutIf(t.Context(), string(jobA)+"/"+handles[i].Name, []byte("x"), objectstore.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	return handles
}

func TestFilesAreDeletedSeveralAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(memoryRoot)
		d := slowToDelete(inner)
		s := New(openMemory(d))
		handles := privateFiles(t, inner, 100)
		var callers sync.WaitGroup
		for _, part := range [][]snapshot.StateHandle{handles[:50], handles[50:]} {
			callers.Go(func() {
				if left, err := s.DiscardHandles(t.Context(), JobBase(memoryRoot, jobA), part); err != nil || len(left) > 0 {
					t.Errorf("left are %v, error %v", left, err)
				}
			})
		}
		callers.Wait()
		if d.mostOnce != deletionsAtOnce {
			t.Errorf("%d at once for both callers, want %d", d.mostOnce, deletionsAtOnce)
		}
		mustHave(t, openMemory(inner), memoryRoot)
	})
}

// A simulation sees the same calls in the same order each time.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(memoryRoot)
		d := slowToDelete(inner)
		handles := privateFiles(t, inner, 20)
		if _, err := New(openMemory(d)).OneAtATime().DiscardHandles(t.Context(), JobBase(memoryRoot, jobA), handles); err != nil {
			t.Fatal(err)
		}
		if d.mostOnce != 1 || len(d.names) != len(handles) {
			t.Errorf("%d calls, %d at once", len(d.names), d.mostOnce)
		}
		for i, h := range handles {
			if !strings.HasSuffix(d.names[i], h.Name) {
				t.Errorf("call %d is for %s", i, d.names[i])
			}
		}
	})
}

// A call that has too little time is repeated with what is left, and the calls
// together delete each file once.
func TestDeletionsThatAreCutOffGetOn(t *testing.T) {
	base := JobBase(memoryRoot, jobA)
	for name, discard := range map[string]func(s *Store, handles []snapshot.StateHandle) func(context.Context) error{
		"handles": func(s *Store, handles []snapshot.StateHandle) func(context.Context) error {
			return func(ctx context.Context) (err error) {
				handles, err = s.DiscardHandles(ctx, base, handles)
				return err
			}
		},
		"checkpoint": func(s *Store, _ []snapshot.StateHandle) func(context.Context) error {
			return func(ctx context.Context) error {
				return s.DiscardCheckpoint(ctx, CheckpointLocation(memoryRoot, jobA, 7))
			}
		},
		"sweep": func(s *Store, _ []snapshot.StateHandle) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := s.Sweep(ctx, SweepRequest{Base: base, Below: ids.AttemptID{Token: 2}})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memory.New(memoryRoot)
				store := slowToDelete(inner)
				const n = 200
				try := discard(New(openMemory(store)), privateFiles(t, inner, n))
				tries := 0
				for ; ; tries++ {
					ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
					err := try(ctx)
					cancel()
					if err == nil {
						break
					}
					if !errors.Is(err, context.DeadlineExceeded) || !GotOn(err) {
						t.Fatalf("try %d, got on %t: %v", tries, GotOn(err), err)
					}
				}
				if tries < 2 {
					t.Errorf("%d tries", tries)
				}
				if most := n + (deletionsAtOnce+1)*tries + 1; len(store.names) > most {
					t.Errorf("%d calls for %d files", len(store.names), n)
				}
				mustHave(t, openMemory(inner), memoryRoot)
			})
		})
	}
}

// One bad file keeps no other, and repeating the call for it leads nowhere.
func TestI4ABadFileKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(memoryRoot)
		j := incremental{t, New(openMemory(inner)), openMemory(inner), memoryRoot}
		store := slowToDelete(inner)
		s := New(openMemory(store))
		try := func(what string, wantGotOn bool, bad string, call func() error) {
			t.Helper()
			store.bad = bad
			if err := call(); !errors.Is(err, objectstore.ErrDenied) || GotOn(err) != wantGotOn {
				t.Errorf("%s: got on %t, error %v", what, GotOn(err), err)
			}
		}
		loc := CheckpointLocation(memoryRoot, jobA, 7)
		privateFiles(t, inner, 20)
		for _, first := range []bool{true, false} {
			try("discard", first, "/1.1-0.0.0", func() error { return s.DiscardCheckpoint(t.Context(), loc) })
		}
		mustHave(t, openMemory(inner), memoryRoot, string(jobA)+"/chk-7/1.1-0.0.0")
		sweep := func() error {
			_, err := s.Sweep(t.Context(), SweepRequest{Base: JobBase(memoryRoot, jobA), Below: ids.AttemptID{Token: 2}})
			return err
		}
		try("sweep", false, "/1.1-0.0.0", sweep)
		if err := s.DiscardCheckpoint(t.Context(), CheckpointLocation(memoryRoot, jobB, 7)); err != nil {
			t.Fatal(err)
		}

		a, b := j.upload(firstAttempt, 8, 0), j.upload(firstAttempt, 8, 1)
		uri := j.publish(firstAttempt, 8, a, b)
		for _, first := range []bool{true, false} {
			try("shared", first, a.Name, func() error {
				_, err := s.DiscardRetained(t.Context(), uri, Expected{})
				return err
			})
		}
		j.mustShare(a)
		if !j.exists(uri) {
			t.Error("the metadata is gone that says what is to be deleted")
		}
	})
}
