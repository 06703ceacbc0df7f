package sim

import (
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
)

// users ask for savepoints, stops and cancels, and ask again when the
// JobManager that they asked is gone.
type users struct {
	c    *cluster
	last coordinator.RequestID
	// open are the requests that have no answer yet, with what to do then.
	open map[coordinator.RequestID]func(coordinator.Answer)
}

// begin schedules what the options say.
func (u *users) begin() {
	c := u.c
	u.open = map[coordinator.RequestID]func(coordinator.Answer){}
	for range c.options.Savepoints {
		c.at(c.between(0, c.options.Safety), "savepoint", func() { u.savepoint(false, 3) })
	}
	if c.options.Stop {
		c.at(c.between(c.options.Safety/5, c.options.Safety), "stop", func() { u.savepoint(true, c.options.StopTries) })
	}
	if c.options.Cancel {
		c.at(c.between(c.options.Safety/5, c.options.Safety), "cancel", u.cancel)
	}
}

// patience is how long a user waits for an answer before he asks again.
const patience = 4 * time.Second

// ask gives a job the event of a request, and calls answered with its answer,
// or with one that says nothing came.
func (u *users) ask(j *job, event func(coordinator.RequestID) coordinator.Event, answered func(coordinator.Answer)) {
	u.last++
	id := u.last
	u.open[id] = answered
	if jm := u.c.leader; jm != nil {
		jm.do(func() { jm.deliver(j, event(id)) })
	}
	u.c.after(patience, "patience", func() {
		if f := u.open[id]; f != nil {
			delete(u.open, id)
			f(coordinator.Answer{Request: id, Error: "no answer"})
		}
	})
}

// answered takes an answer of a JobManager.
func (u *users) answered(d *jobDriver, a coordinator.Answer) {
	u.c.checkAnswer(d, a)
	if f := u.open[a.Request]; f != nil {
		delete(u.open, a.Request)
		f(a)
	}
}

func (u *users) savepoint(stop bool, tries int) {
	c := u.c
	j := c.jobs[0]
	if j.ended || tries == 0 || c.healed && !stop {
		return
	}
	ask := func(id coordinator.RequestID) coordinator.Event {
		return coordinator.SavepointRequested{Request: id, Dir: savepointDir, Stop: stop}
	}
	u.ask(j, ask, func(a coordinator.Answer) {
		if a.Error == "" {
			c.result.Savepoints++
			return
		}
		c.after(c.between(100*time.Millisecond, time.Second), "ask again", func() { u.savepoint(stop, tries-1) })
	})
}

func (u *users) cancel() {
	j := u.c.jobs[len(u.c.jobs)-1]
	if j.ended {
		return
	}
	ask := func(id coordinator.RequestID) coordinator.Event { return coordinator.CancelRequested{Request: id} }
	u.ask(j, ask, func(a coordinator.Answer) {
		if a.Error == "" {
			u.c.result.Cancels++
			return
		}
		u.c.after(u.c.between(100*time.Millisecond, time.Second), "ask again", u.cancel)
	})
}
