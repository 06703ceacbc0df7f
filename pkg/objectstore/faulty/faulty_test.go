package faulty_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/objectstore/storetest"
)

func TestConformanceWithoutFaults(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store {
		return faulty.New(memory.New("mem://test"), func(faulty.Call) faulty.Fault { return faulty.Fault{} }, nil)
	}, storetest.Options{})
}

func TestFaults(t *testing.T) {
	inner := memory.New("mem://test")
	var fault faulty.Fault
	var call faulty.Call
	var slept time.Duration
	store := faulty.New(inner, func(c faulty.Call) faulty.Fault { call = c; return fault },
		func(_ context.Context, _ faulty.Call, d time.Duration) error { slept += d; return nil })
	put := func(name string) error {
		return store.Put(t.Context(), name, func(w io.Writer) error { _, err := w.Write([]byte(name)); return err })
	}
	exists := func(name string) bool {
		_, _, err := inner.Read(t.Context(), name, 100)
		return err == nil
	}

	fault = faulty.Fault{Before: faulty.ErrInjected}
	if err := put("before"); !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrUnknownOutcome) || exists("before") {
		t.Errorf("error before: %v, exists: %v", err, exists("before"))
	}
	if call != (faulty.Call{Op: faulty.Put, Name: "before"}) {
		t.Errorf("decided about %v %s", call.Op, call.Name)
	}

	fault = faulty.Fault{After: faulty.ErrInjected}
	if err := put("after"); !errors.Is(err, objectstore.ErrUnknownOutcome) || !errors.Is(err, faulty.ErrInjected) || !exists("after") {
		t.Errorf("error after: %v, exists: %v", err, exists("after"))
	}
	if _, err := store.PutIf(t.Context(), "if", nil, objectstore.IfAbsent()); !errors.Is(err, objectstore.ErrUnknownOutcome) || !exists("if") {
		t.Errorf("error after: %v, exists: %v", err, exists("if"))
	}
	if _, _, err := store.Read(t.Context(), "after", 100); !errors.Is(err, faulty.ErrInjected) || errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("read: %v", err)
	}
	// What the store itself refuses has no unknown outcome.
	if _, err := store.PutIf(t.Context(), "if", nil, objectstore.IfAbsent()); !errors.Is(err, objectstore.ErrPrecondition) || errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("refused: %v", err)
	}
	reader, err := store.Open(t.Context(), "after")
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(reader); !errors.Is(err, faulty.ErrInjected) || string(content) != "after" {
		t.Errorf("reader gave %q, %v", content, err)
	}
	listed := 0
	for _, err = range store.List(t.Context(), "") {
		listed++
	}
	if !errors.Is(err, faulty.ErrInjected) || listed != 3 {
		t.Errorf("listing gave %d items, at last %v", listed, err)
	}

	fault = faulty.Fault{Delay: time.Hour}
	if err := put("slow"); err != nil || slept != time.Hour {
		t.Errorf("slow: %v, slept %v", err, slept)
	}
	if got, want := store.Counts(), (faulty.Counts{Calls: 8, Delays: 1, Before: 1, After: 5}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}
