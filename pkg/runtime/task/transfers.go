package task

import (
	"sync"
)

// Transfers carries files to and from storage for the tasks of an executor,
// several at a time. Its methods may be called by any goroutine.
type Transfers struct {
	// slots has a token for each that may go on at once, of all tasks.
	slots chan struct{}
}

const (
	// transfersMax bounds the files that an executor carries at once: enough to
	// fill a fast link to a store that gives one connection a tenth of it. Each
	// has a buffer of 256 KiB, and what the client of the store needs (S3: a part).
	transfersMax = 16
	// transfersOfTask bounds those of one task, as Flink does: the large
	// snapshot of one leaves room for the others.
	transfersOfTask = 4
)

// NewTransfers makes the transfers of an executor.
func NewTransfers() *Transfers { return &Transfers{slots: make(chan struct{}, transfersMax)} }

// Each calls do(0) to do(n-1), several at a time, and returns when all that
// were called have. After an error no more are begun; of several errors the
// one of the lowest number is returned. A panic of do is one of the caller's.
func (t *Transfers) Each(n int, do func(i int) error) error {
	var mu sync.Mutex
	next, failed := 0, n // failed is the lowest number with an error
	var err error
	var panicked *panicError
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == n || failed < n || panicked != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var workers sync.WaitGroup
	for range min(n, transfersOfTask) {
		workers.Go(func() {
			for {
				t.slots <- struct{}{}
				i, ok := take()
				if !ok {
					<-t.slots
					return
				}
				var oneErr error
				p := protect(func() { oneErr = do(i) })
				<-t.slots
				mu.Lock()
				if p != nil && panicked == nil {
					panicked = p
				}
				if oneErr != nil && i < failed {
					failed, err = i, oneErr
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return err
}
