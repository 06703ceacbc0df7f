package slots

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
)

// Notice is what a job must be told about its request: a Grant or a Shortage.
type Notice interface {
	isNotice()
	String() string
}

// Grant gives an attempt every slot it asked for.
type Grant struct {
	Job     ids.JobID
	Attempt ids.AttemptID
	Slots   []Slot
}

// Shortage says that the request waits. It is repeated when Free changes.
type Shortage struct {
	Job        ids.JobID
	Attempt    ids.AttemptID
	Want, Free int
}

func (Grant) isNotice()    {}
func (Shortage) isNotice() {}

// String prints the notice for scripts and traces.
func (g Grant) String() string {
	return fmt.Sprintf("grant job=%s attempt=%s slots=%v", g.Job, g.Attempt, g.Slots)
}

// String prints the notice for scripts and traces.
func (s Shortage) String() string {
	return fmt.Sprintf("shortage job=%s attempt=%s want=%d free=%d", s.Job, s.Attempt, s.Want, s.Free)
}

// Table is the slot table of all jobs. The zero Table is empty and ready.
// One goroutine owns it.
type Table struct {
	taskManagers map[ids.TaskManagerID]*taskManager
	// jobs holds the newest attempt of every job that was ever heard of and
	// not forgotten: the fence against older ones.
	jobs map[ids.JobID]*job
	// queue holds the waiting requests, oldest first. One for each job at most.
	queue []*job
}

// taskManager is one registered TaskManager.
type taskManager struct {
	id   ids.TaskManagerID
	held []*job // by slot index; nil is free
	used int
}

// job is what the table knows of one job.
type job struct {
	id      ids.JobID
	attempt ids.AttemptID
	leased  []Slot
	want    int // slots of the waiting request; 0 for none
	avoid   []ids.TaskManagerID
	told    int // Free of the last Shortage, -1 before the first
}

// Register adds a TaskManager with free slots. Registering the same ID again
// changes nothing: a process that restarted has a new ID.
func (t *Table) Register(id ids.TaskManagerID, count int) []Notice {
	if _, known := t.taskManagers[id]; known || count < 1 {
		return nil
	}
	if t.taskManagers == nil {
		t.taskManagers = make(map[ids.TaskManagerID]*taskManager)
	}
	t.taskManagers[id] = &taskManager{id: id, held: make([]*job, count)}
	return t.serve()
}

// Lose removes a TaskManager and ends the leases on its slots. The attempts
// that held them keep their other slots until they release them.
func (t *Table) Lose(id ids.TaskManagerID) []Notice {
	tm, known := t.taskManagers[id]
	if !known {
		return nil
	}
	delete(t.taskManagers, id)
	for _, holder := range tm.held {
		if holder != nil {
			holder.leased = slices.DeleteFunc(holder.leased, func(s Slot) bool { return s.TaskManager == id })
		}
	}
	return t.serve()
}

// Request asks for count slots at once for an attempt of a job. It ends what
// older attempts of the job hold or wait for. Repeated by the same attempt it
// repeats the answer. Slots of the TaskManagers in avoid are granted when there
// are not enough others.
func (t *Table) Request(id ids.JobID, attempt ids.AttemptID, count int, avoid ...ids.TaskManagerID) []Notice {
	if count < 1 {
		return nil
	}
	j, known := t.jobs[id]
	switch {
	case !known:
		if t.jobs == nil {
			t.jobs = make(map[ids.JobID]*job)
		}
		j = &job{id: id, attempt: attempt}
		t.jobs[id] = j
	case attempt.Less(j.attempt):
		return nil
	case attempt != j.attempt:
		t.endLeases(j)
		j.attempt = attempt
	case len(j.leased) > 0:
		return []Notice{j.grant()}
	}
	if j.want == 0 {
		t.queue = append(t.queue, j)
	}
	j.want, j.told, j.avoid = count, -1, avoid
	return t.serve()
}

// Release gives back everything that the attempt holds, or withdraws its
// request. What a newer attempt holds stays.
func (t *Table) Release(id ids.JobID, attempt ids.AttemptID) []Notice {
	j, known := t.jobs[id]
	if !known || attempt.Less(j.attempt) {
		return nil
	}
	j.attempt = attempt
	t.endLeases(j)
	return t.serve()
}

// Forget releases everything of a job that has ended for good and drops the
// fence of its attempts. The caller knows that nothing of it is under way.
func (t *Table) Forget(id ids.JobID) []Notice {
	j, known := t.jobs[id]
	if !known {
		return nil
	}
	t.endLeases(j)
	delete(t.jobs, id)
	return t.serve()
}

func (t *Table) endLeases(j *job) {
	for _, s := range j.leased {
		tm := t.taskManagers[s.TaskManager]
		invariant.Check(tm != nil && tm.held[s.Index] == j, "I7", "slot %v of job %s is held by another", s, j.id)
		tm.held[s.Index] = nil
		tm.used--
	}
	j.leased = nil
	if j.want > 0 {
		j.want = 0
		t.queue = slices.DeleteFunc(t.queue, func(q *job) bool { return q == j })
	}
}

// serve grants the waiting requests that fit, oldest first, and tells the ones
// that go on waiting what is free now.
func (t *Table) serve() []Notice {
	var notices []Notice
	_, free := t.Count()
	waiting := t.queue[:0]
	for _, j := range t.queue {
		if j.want > free {
			waiting = append(waiting, j)
			continue
		}
		free -= j.want
		t.lease(j)
		notices = append(notices, j.grant())
	}
	clear(t.queue[len(waiting):])
	t.queue = waiting
	for _, j := range t.queue {
		if j.told != free {
			j.told = free
			notices = append(notices, Shortage{Job: j.id, Attempt: j.attempt, Want: j.want, Free: free})
		}
	}
	return notices
}

// lease takes free slots for a job, each from the TaskManager with the fewest
// used among those that it does not avoid, then among the others; of equals, the
// first by ID.
func (t *Table) lease(j *job) {
	candidates := t.sorted()
	avoids := func(tm *taskManager) bool { return slices.Contains(j.avoid, tm.id) }
	slices.SortStableFunc(candidates, func(a, b *taskManager) int {
		switch {
		case avoids(a) == avoids(b):
			return 0
		case avoids(a):
			return 1
		}
		return -1
	})
	for range j.want {
		var best *taskManager
		for _, tm := range candidates {
			if best != nil && avoids(tm) && !avoids(best) {
				break
			}
			if tm.used < len(tm.held) && (best == nil || tm.used < best.used) {
				best = tm
			}
		}
		invariant.Check(best != nil, "I7", "job %s was granted %d slots that are not there", j.id, j.want)
		index := slices.Index(best.held, nil)
		best.held[index] = j
		best.used++
		j.leased = append(j.leased, Slot{TaskManager: best.id, Index: int32(index)})
	}
	j.want = 0
}

func (t *Table) sorted() []*taskManager {
	all := make([]*taskManager, 0, len(t.taskManagers))
	for _, tm := range t.taskManagers {
		all = append(all, tm)
	}
	slices.SortFunc(all, func(a, b *taskManager) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (j *job) grant() Grant {
	return Grant{Job: j.id, Attempt: j.attempt, Slots: slices.Clone(j.leased)}
}

// Count is the number of all slots and of the free ones.
func (t *Table) Count() (total, free int) {
	for _, tm := range t.taskManagers {
		total += len(tm.held)
		free += len(tm.held) - tm.used
	}
	return total, free
}

// TaskManagerSlots is the use of one TaskManager's slots, for display.
type TaskManagerSlots struct {
	TaskManager ids.TaskManagerID
	Total, Free int
}

// TaskManagers lists the registered TaskManagers by ID: a copy.
func (t *Table) TaskManagers() []TaskManagerSlots {
	all := t.sorted()
	out := make([]TaskManagerSlots, len(all))
	for i, tm := range all {
		out[i] = TaskManagerSlots{TaskManager: tm.id, Total: len(tm.held), Free: len(tm.held) - tm.used}
	}
	return out
}

// Check verifies that the table is sound (I7): every leased slot has exactly
// one holder who knows of it. It costs time in proportion to the table; tests
// and the simulator call it after every step.
func (t *Table) Check() {
	held := 0
	for _, tm := range t.sorted() {
		used := 0
		for i, holder := range tm.held {
			if holder == nil {
				continue
			}
			used++
			known := slices.Contains(holder.leased, Slot{TaskManager: tm.id, Index: int32(i)})
			invariant.Check(known, "I7", "slot %s#%d is lost: job %s does not know of it", tm.id, i, holder.id)
		}
		invariant.Check(used == tm.used, "I7", "%s counts %d slots as used, %d are", tm.id, tm.used, used)
		held += used
	}
	leased := 0
	for _, j := range t.jobs {
		leased += len(j.leased)
	}
	invariant.Check(held == leased, "I7", "%d slots are held, %d leased", held, leased)
}
