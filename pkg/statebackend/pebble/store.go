package pebble

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
)

// store is a database and the generations on their way into it. The subtask's
// goroutine pushes them, a goroutine of the store applies one after the other,
// and views wait for theirs.
type store struct {
	backend  *Backend
	db       *lsm.DB
	options  *lsm.Options
	dir      string
	columns  map[int]column // by number
	valueMax int
	closeAll func() error
	// level0 are the sublevels of level 0 and the compactions under way.
	level0 func() (sublevels int32, compacting int64)
	// origins are the files that the database uses of restored parts, by its
	// names; parts by RestoredPart.Number. Does not change.
	origins map[string]fileOrigin

	// position is held while a generation is applied or a view takes what it
	// needs of the database, which must not move meanwhile.
	position sync.Mutex
	applier  applier

	mu      sync.Mutex
	changed sync.Cond // something below has changed
	queue   []*generation
	pushed  uint64 // generations pushed so far
	applied uint64 // and applied: always in the order in which they were pushed
	// err is why the last attempt to apply failed, and failures counts those.
	err      error
	failures uint64
	running  bool // the goroutine is
	views    []*frozen
	users    int // the State, while open, and views that are alive
	closed   bool
	viewDirs uint64
}

// push hands over a generation and sees to it that it is applied.
func (s *store) push(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushed++
	g.number = s.pushed
	s.queue = append(s.queue, g)
	s.kick()
}

// kick starts the goroutine if there is work; s.mu is held.
func (s *store) kick() {
	if !s.running && len(s.queue) > 0 {
		s.running = true
		go s.run() // waited for by finish, through running
	}
}

// run applies what is queued, and ends with the queue or with an error.
func (s *store) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for len(s.queue) > 0 && (!s.closed || len(s.views) > 0) {
		g := s.queue[0]
		s.relieve()
		views := append([]*frozen(nil), s.views...)
		s.mu.Unlock()
		err := s.step(g, views)
		s.mu.Lock()
		if err != nil {
			s.err = err
			s.failures++
			break
		}
		s.err = nil
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.applied = g.number
		s.changed.Broadcast()
	}
	s.running = false
}

// step applies one generation, once the views before it have what they need.
func (s *store) step(g *generation, views []*frozen) error {
	s.position.Lock()
	defer s.position.Unlock()
	for _, f := range views {
		if f.generation < g.number {
			f.capture(s, captureAll)
		}
	}
	return s.applier.apply(s, g)
}

const (
	// sublevelsMax is from how many sublevels of level 0 on, each of which
	// costs a read one more lookup, no generation is added to them. Compactions
	// begin at a few, and without a pause they keep it far below.
	sublevelsMax = 20
	// relieveEvery is how often it is looked at, relieveMax for how long at
	// most: when compactions fail, the disk being full, that is for the
	// attempt to write to tell.
	relieveEvery = 20 * time.Millisecond
	relieveMax   = 30 * time.Second
	// idleMax is how often no compaction may be under way before it is taken
	// that none will be: one is not begun at once when another has ended.
	idleMax = 5
)

// relieve waits until compactions have caught up; s.mu is held but while it
// waits. Nobody is kept from the database meanwhile, nor from closing.
func (s *store) relieve() {
	idle := 0
	for begin := time.Now(); !s.closed && time.Since(begin) < relieveMax; {
		s.mu.Unlock()
		sublevels, compacting := s.level0()
		s.mu.Lock()
		if sublevels < sublevelsMax {
			return
		}
		if compacting > 0 {
			idle = 0
		} else if idle++; idle > idleMax {
			return
		}
		later := time.AfterFunc(relieveEvery, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
		s.changed.Wait()
		later.Stop()
	}
}

// level0Of is level0 of a database.
func level0Of(db *lsm.DB) func() (sublevels int32, compacting int64) {
	return func() (int32, int64) {
		m := db.Metrics()
		return m.Levels[0].Sublevels, m.Compact.NumInProgress
	}
}

// stuck is why the oldest of several generations could not be written at the
// last attempt, nil if there is no such trouble.
func (s *store) stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) < sealedMax {
		return nil
	}
	return s.err
}

// waiting is what generations in the queue take in memory; s.mu is held.
func (s *store) waiting() (bytes int64) {
	for _, g := range s.queue {
		bytes += g.bytes
	}
	return bytes
}

// await waits until at most left generations are not applied, or those that
// are not take at most room bytes. It makes one more attempt at what has failed.
func (s *store) await(left int, room int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := s.failures
	s.kick()
	for len(s.queue) > left && s.waiting() > room {
		if s.failures > failures {
			return s.err
		}
		s.changed.Wait()
	}
	return nil
}

// reach waits until generation g is applied, or the next attempt has failed.
func (s *store) reach(ctx context.Context, g uint64) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := s.failures
	s.kick()
	for s.applied < g {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.failures > failures {
			return s.err
		}
		s.changed.Wait()
	}
	return nil
}

// freeze makes f a view of everything that was pushed.
func (s *store) freeze(f *frozen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.store, f.generation = s, s.pushed
	s.views = append(s.views, f)
	s.users++
}

// newViewDir is a directory that no view has had.
func (s *store) newViewDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewDirs++
	return filepath.Join(s.dir, fmt.Sprintf("view-%d", s.viewDirs))
}

// get reads an entry; the value is good until done is called.
func (s *store) get(key []byte) (value []byte, done func() error, err error) {
	value, closer, err := s.db.Get(key)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read state: %w", err)
	}
	return value, closer.Close, nil
}

// entries estimates how many entries the database has.
func (s *store) entries() int64 {
	tables, err := s.db.SSTables(lsm.WithProperties())
	if err != nil {
		return 0
	}
	var n uint64
	for _, level := range tables {
		for _, t := range level {
			n += t.Properties.NumEntries - min(t.Properties.NumEntries, 2*t.Properties.NumDeletions)
		}
	}
	return int64(n)
}

// count waits for everything to be applied and counts.
func (s *store) count() (n int64, err error) {
	if err := s.await(0, -1); err != nil {
		return 0, err
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n, it.Close()
}

// forget takes a view out.
func (s *store) forget(f *frozen) {
	s.mu.Lock()
	for i := range s.views {
		if s.views[i] == f {
			s.views = append(s.views[:i], s.views[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
}

// close is the State's: what no view needs is not written any more.
func (s *store) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.finish()
}

// finish ends one use; the last one waits for the goroutine and closes the database.
func (s *store) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	for s.running {
		s.changed.Wait()
	}
	return s.closeAll()
}
