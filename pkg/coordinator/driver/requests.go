package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirstream/weir/pkg/coordinator"
)

// requestsMax bounds the users' requests that wait for one job. Each holds a
// call of flinkctl; so many at once are a script gone wrong.
const requestsMax = 256

// requests are the users' requests that wait for their answer.
type requests struct {
	mu struct {
		sync.Mutex
		next    coordinator.RequestID
		waiting map[coordinator.RequestID]chan<- answer
		over    error // the driver has ended
	}
}

type answer struct {
	coordinator.Answer
	err error
}

func (r *requests) add() (coordinator.RequestID, <-chan answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.over != nil:
		return 0, nil, r.mu.over
	case len(r.mu.waiting) >= requestsMax:
		return 0, nil, fmt.Errorf("%d requests wait for this job already", requestsMax)
	}
	if r.mu.waiting == nil {
		r.mu.waiting = map[coordinator.RequestID]chan<- answer{}
	}
	r.mu.next++
	reply := make(chan answer, 1)
	r.mu.waiting[r.mu.next] = reply
	return r.mu.next, reply, nil
}

func (r *requests) remove(id coordinator.RequestID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.waiting, id)
}

func (r *requests) answer(a coordinator.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reply, ok := r.mu.waiting[a.Request]; ok {
		delete(r.mu.waiting, a.Request)
		result := answer{Answer: a}
		if a.Error != "" {
			result.err = errors.New(a.Error)
		}
		reply <- result
	}
}

func (r *requests) failAll(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.over = err
	for _, reply := range r.mu.waiting {
		reply <- answer{err: err}
	}
	clear(r.mu.waiting)
}

// Savepoint takes the savepoint of the request, whose ID it sets, and with
// Stop ends the job. It waits for as long as that takes, with Stop until all
// commits are done. When ctx ends it returns, but the savepoint goes on. The
// answer's Path is set, even beside an error, when the savepoint was completed.
func (d *Driver) Savepoint(ctx context.Context, request coordinator.SavepointRequested) (coordinator.Answer, error) {
	return d.request(ctx, func(id coordinator.RequestID) coordinator.Event {
		request.Request = id
		return request
	})
}

// Checkpoint takes a checkpoint now and waits until it is published.
func (d *Driver) Checkpoint(ctx context.Context) (coordinator.Answer, error) {
	return d.request(ctx, func(id coordinator.RequestID) coordinator.Event {
		return coordinator.CheckpointRequested{Request: id}
	})
}

// Cancel cancels the job and waits until it has ended.
func (d *Driver) Cancel(ctx context.Context) (coordinator.Answer, error) {
	return d.request(ctx, func(id coordinator.RequestID) coordinator.Event {
		return coordinator.CancelRequested{Request: id}
	})
}

func (d *Driver) request(ctx context.Context, event func(coordinator.RequestID) coordinator.Event) (coordinator.Answer, error) {
	id, reply, err := d.requests.add()
	if err != nil {
		return coordinator.Answer{}, err
	}
	defer d.requests.remove(id)
	d.mail.put(event(id))
	select {
	case a := <-reply:
		return a.Answer, a.err
	case <-ctx.Done():
		return coordinator.Answer{}, ctx.Err()
	}
}
