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
		c.at(c.between(0, c.options.Safety), "savepoint", func() {
			u.savepoint(c.anyApp().last(), false, false, 3, func(string) {})
		})
	}
	for _, a := range c.apps {
		for i := range a.rescales {
			x := &a.rescales[i]
			c.at(time.Duration(x.At*float64(c.options.Safety)), "rescale", func() { u.rescale(a, x) })
		}
	}
	for _, a := range c.apps {
		if a.last().options.IsUnbounded() {
			c.at(c.between(c.options.Safety/2, c.options.Safety*11/10), "stop", func() { u.stopForGood(a) })
		}
	}
	if c.options.Cancel {
		c.at(c.between(c.options.Safety/5, c.options.Safety), "cancel", func() { u.cancel(c.apps[0].last()) })
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

// savepoint asks for a savepoint until there is one or the tries are over.
func (u *users) savepoint(j *job, stop, drain bool, tries int, done func(path string)) {
	c := u.c
	if j.ended || tries == 0 || c.healed && !stop && tries < 50 {
		return
	}
	ask := func(id coordinator.RequestID) coordinator.Event {
		return coordinator.SavepointRequested{Request: id, Dir: savepointDir, Stop: stop, Drain: drain}
	}
	u.ask(j, ask, func(a coordinator.Answer) {
		if a.Error == "" {
			c.result.Savepoints++
			if drain {
				c.result.Drains++
			}
			done(a.Path)
			return
		}
		c.after(c.between(100*time.Millisecond, time.Second), "ask again", func() { u.savepoint(j, stop, drain, tries-1, done) })
	})
}

// stopForGood stops a job that would never end, however often that takes. No
// other follows.
func (u *users) stopForGood(a *app) {
	c := u.c
	if a.isDone() {
		return
	}
	if j := a.last(); !j.isRefused() && !j.resumes {
		j.plan = nil
		u.savepoint(j, true, c.random.IntN(3) == 0, 1, func(string) { c.result.Stops++ })
	}
	c.after(c.between(200*time.Millisecond, 2*time.Second), "stop again", func() { u.stopForGood(a) })
}

func (u *users) cancel(j *job) {
	if j.ended {
		return
	}
	ask := func(id coordinator.RequestID) coordinator.Event { return coordinator.CancelRequested{Request: id} }
	u.ask(j, ask, func(a coordinator.Answer) {
		if a.Error == "" {
			u.c.result.Cancels++
			return
		}
		u.c.after(u.c.between(100*time.Millisecond, time.Second), "ask again", func() { u.cancel(j) })
	})
}

// rescale ends the present job so that it goes on with other parallelisms.
// What it does next follows in cluster.resume.
func (u *users) rescale(a *app, x *Rescale) {
	c := u.c
	j := a.last()
	if j.ended || j.isRefused() || j.resumes || c.healed {
		return
	}
	c.trace.add("%s is to be rescaled by %s", j.name, x.How)
	j.plan = x
	switch x.How {
	case StopWithSavepoint:
		u.savepoint(j, true, x.Drain, x.Tries, func(string) {})
	case CancelAndResume:
		j.resumes = true
		u.cancel(j)
	case SavepointAndCancel:
		u.savepoint(j, false, false, x.Tries, func(path string) {
			c.after(c.between(0, time.Second), "cancel", func() {
				if !j.resumes && !j.ended {
					j.resumes, j.savepoint, j.plan = true, path, x
					u.cancel(j)
				}
			})
		})
	case rescaleKinds:
	}
}
