package task

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTransfersAreBounded: all are carried, at most so many of a task and of
// an executor at once.
func TestTransfersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := NewTransfers()
		var all, done atomic.Int64
		var most int64
		ended := make(chan error)
		for range 6 {
			go func() {
				var own, ownMost atomic.Int64
				err := x.Each(10, func(int) error {
					all.Add(1)
					ownMost.Store(max(ownMost.Load(), own.Add(1)))
					time.Sleep(time.Second)
					own.Add(-1)
					all.Add(-1)
					done.Add(1)
					return nil
				})
				if n := ownMost.Load(); n > transfersOfTask {
					err = fmt.Errorf("%d of one task at once", n)
				}
				ended <- err
			}()
		}
		for done.Load() < 60 {
			synctest.Wait()
			most = max(most, all.Load())
			time.Sleep(time.Second)
		}
		for range 6 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if most != transfersMax {
			t.Errorf("%d at once at most, want %d", most, transfersMax)
		}
	})
}

// TestTransfersEndWithTheFirstError: the others that were begun are waited for.
func TestTransfersEndWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := NewTransfers()
		var begun, done atomic.Int64
		err := x.Each(100, func(i int) error {
			begun.Add(1)
			defer done.Add(1)
			time.Sleep(time.Duration(i) * time.Second)
			if i == 1 || i == 2 {
				return fmt.Errorf("transfer %d", i)
			}
			return nil
		})
		if err == nil || err.Error() != "transfer 1" || begun.Load() != done.Load() || begun.Load() > 8 {
			t.Errorf("%v after %d of %d had ended", err, done.Load(), begun.Load())
		}
		if err := x.Each(0, func(int) error { return errors.New("called") }); err != nil {
			t.Error(err)
		}
	})
}

// TestTransfersPassPanicsOn to whoever waits for them.
func TestTransfersPassPanicsOn(t *testing.T) {
	x := NewTransfers()
	p := protect(func() { _ = x.Each(3, func(int) error { panic("broken") }) })
	if p == nil || p.Error() != "panic: panic: broken" && p.Error() != "panic: broken" {
		t.Errorf("panic %v", p)
	}
	if err := x.Each(3, func(int) error { return nil }); err != nil {
		t.Error(err)
	}
}
