package simjob

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	weirids "github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/statebackend"
)

type ids = weirids.OperatorUID

type frozenKeyed struct{ f statebackend.Frozen }

// Write implements operator.Frozen.
func (f frozenKeyed) Write(_ context.Context, w operator.SnapshotWriter) error { return w.Keyed(f.f) }

// Release implements operator.Frozen.
func (f frozenKeyed) Release() { f.f.Release() }

// World is what is outside the job: transactions that are prepared and
// invisible, and what has been committed. It outlives every crash. It belongs
// to the goroutine that steps the job.
type World struct {
	// Observer, if not nil, is told what happens inside the job.
	Observer *Observer
	// Forgets, if not nil and true, lets a commit succeed that does nothing: a
	// sink with a bug, planted for tests of the checkers.
	Forgets func() bool
	// SkipsRecords, if not nil and true, leaves out the record that a restored
	// source is to begin with.
	SkipsRecords func() bool
	// DropsTimers, if not nil and true, writes a snapshot without its timers;
	// BadTTL, if not nil, is a clock that may go back for a state whose
	// time-to-live goes by it. Both are planted.
	DropsTimers func() bool
	BadTTL      func() int64

	prepared  map[string][]Count
	committed map[string][]Count
	// order is the names of committed transactions, oldest first.
	order []string
	// violations are broken rules that the world noticed.
	violations []string
}

// NewWorld makes an empty world.
func NewWorld() *World {
	return &World{prepared: map[string][]Count{}, committed: map[string][]Count{}}
}

// Committed returns everything visible, in the order of commits.
func (w *World) Committed() []Count {
	var out []Count
	for _, name := range w.order {
		out = append(out, w.committed[name]...)
	}
	return out
}

// Transactions are the names of the committed transactions, oldest first.
func (w *World) Transactions() []string { return slices.Clone(w.order) }

// Prepared is the number of transactions that are neither committed nor removed.
func (w *World) Prepared() int { return len(w.prepared) }

// PreparedTransactions are their names, in order.
func (w *World) PreparedTransactions() []string { return slices.Sorted(maps.Keys(w.prepared)) }

// Has reports whether a transaction is prepared or committed.
func (w *World) Has(name string) bool {
	_, prepared := w.prepared[name]
	_, committed := w.committed[name]
	return prepared || committed
}

// Violations are broken rules that the world noticed, such as a lost transaction.
func (w *World) Violations() []string { return w.violations }

func (w *World) prepare(name string, records []Count) {
	if before, ok := w.prepared[name]; ok && !slices.Equal(before, records) {
		w.violations = append(w.violations, "transaction "+name+" was prepared twice with different records")
	}
	w.prepared[name] = records
}

func (w *World) commit(by *operator.Context, name string) error {
	if _, ok := w.committed[name]; ok {
		return nil
	}
	records, ok := w.prepared[name]
	if !ok && w.Observer.abandoned(name) {
		return operator.Permanentf("transaction %s was given up", name)
	}
	if !ok {
		w.violations = append(w.violations, "transaction "+name+" is lost")
		return operator.Permanentf("transaction %s is neither prepared nor committed", name)
	}
	if w.Forgets != nil && w.Forgets() {
		return nil
	}
	delete(w.prepared, name)
	w.committed[name] = records
	w.order = append(w.order, name)
	w.Observer.committed(by, name, records)
	return nil
}

// Forget takes a committed transaction out of what is visible: a user copies
// the output as it was at a savepoint before he goes back to it.
func (w *World) Forget(name string) {
	delete(w.committed, name)
	w.order = slices.DeleteFunc(w.order, func(n string) bool { return n == name })
}

// Records are those of a transaction that is prepared or committed.
func (w *World) Records(name string) []Count {
	if records, ok := w.committed[name]; ok {
		return records
	}
	return w.prepared[name]
}

func (w *World) abort(by *operator.Context, name string) {
	if _, ok := w.committed[name]; ok {
		w.violations = append(w.violations, "transaction "+name+" is aborted, which is committed")
	}
	delete(w.prepared, name)
	w.Observer.aborted(by, name)
}

// transactionName has what Recover must know: attempt, checkpoint and sink.
func transactionName(ctx *operator.Context, id weirids.CheckpointID) string {
	return fmt.Sprintf("%s/%s/%d/%d/%s", ctx.Job, ctx.Attempt, id, ctx.Index, ctx.Operator)
}

// recover removes what earlier attempts of a sink have prepared and nobody will commit.
func (w *World) recover(by *operator.Context, r operator.Recovery) {
	names := make([]string, 0, len(w.prepared))
	for name := range w.prepared {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		parts := splitName(name)
		if parts.job != by.Job || parts.operator != by.Operator || !parts.attempt.Less(r.Attempt) {
			continue
		}
		mayBeInSavepoint := slices.ContainsFunc(r.Savepoints, func(s weirids.CheckpointID) bool { return parts.checkpoint <= s })
		if parts.checkpoint > r.Restored && !mayBeInSavepoint {
			delete(w.prepared, name)
		}
	}
}

// takeBack takes back what earlier attempts committed for checkpoints that the
// job has fallen back from.
func (w *World) takeBack(by *operator.Context, r operator.Recovery) {
	for _, name := range w.Transactions() {
		p := splitName(name)
		if p.job != by.Job || p.operator != by.Operator || !p.attempt.Less(r.Attempt) || p.checkpoint <= r.Restored {
			continue
		}
		records := w.committed[name]
		w.Forget(name)
		if slices.ContainsFunc(r.Savepoints, func(s weirids.CheckpointID) bool { return p.checkpoint <= s }) {
			w.prepared[name] = records
		}
		w.Observer.revoked(by, name, records)
	}
}

// TakeBack makes a committed transaction prepared again.
func (w *World) TakeBack(name string) {
	w.prepared[name] = w.committed[name]
	w.Forget(name)
}

type nameParts struct {
	job        weirids.JobID
	attempt    weirids.AttemptID
	checkpoint weirids.CheckpointID
	operator   ids
}

func splitName(name string) nameParts {
	var p nameParts
	var index int
	p.job = weirids.JobID(name[:32])
	if _, err := fmt.Sscanf(name[33:], "%d.%d/%d/%d/%s", &p.attempt.Token, &p.attempt.Number, &p.checkpoint, &index, &p.operator); err != nil {
		panic(fmt.Sprintf("transaction name %q: %v", name, err))
	}
	return p
}

type sink struct {
	world     *World
	revocable bool
}

// CommitsAreRevocable implements operator.Revocable.
func (s sink) CommitsAreRevocable() bool { return s.revocable }

// OpenWriter implements operator.TwoPhase.
func (s sink) OpenWriter(ctx *operator.Context) (operator.TwoPhaseWriter[Count], error) {
	return &writer{world: s.world, ctx: ctx}, nil
}

// OpenCommitter implements operator.TwoPhase.
func (s sink) OpenCommitter(ctx *operator.Context) (operator.Committer, error) {
	return &committer{world: s.world, ctx: ctx, revocable: s.revocable}, nil
}

// Describe implements operator.TwoPhase.
func (s sink) Describe() operator.Description { return operator.Description{} }

type writer struct {
	world *World
	ctx   *operator.Context
	open  []Count
}

// Write implements operator.TwoPhaseWriter.
func (w *writer) Write(v Count) error {
	w.world.Observer.record()
	w.open = append(w.open, v)
	return nil
}

// Prepare implements operator.TwoPhaseWriter.
func (w *writer) Prepare(id weirids.CheckpointID) (operator.Prepared, error) {
	if len(w.open) == 0 {
		return nil, nil
	}
	p := &prepared{world: w.world, name: transactionName(w.ctx, id), records: w.open}
	w.open = nil
	return p, nil
}

// Close implements operator.TwoPhaseWriter.
func (w *writer) Close() error { return nil }

type prepared struct {
	world   *World
	name    string
	records []Count
}

// Persist implements operator.Prepared.
func (p *prepared) Persist(context.Context) ([]operator.Committable, error) {
	if err := p.world.Observer.fails(Persisting); err != nil {
		return nil, err
	}
	p.world.prepare(p.name, p.records)
	if err := p.world.Observer.fails(Persisted); err != nil {
		return nil, err
	}
	return []operator.Committable{operator.Committable(p.name)}, nil
}

type committer struct {
	world     *World
	ctx       *operator.Context
	revocable bool
}

// Recover implements operator.Committer.
func (c *committer) Recover(_ context.Context, r operator.Recovery) error {
	if c.ctx.Index == 0 {
		c.world.recover(c.ctx, r)
		if c.revocable {
			c.world.takeBack(c.ctx, r)
		}
	}
	return nil
}

// Commit implements operator.Committer.
func (c *committer) Commit(ctx context.Context, all []operator.Committable) error {
	for _, name := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.world.Observer.fails(Committing); err != nil {
			return err
		}
		if err := c.world.commit(c.ctx, string(name)); err != nil {
			return err
		}
		if err := c.world.Observer.fails(HasCommitted); err != nil {
			return err
		}
	}
	return nil
}

// Abort implements operator.Committer.
func (c *committer) Abort(ctx context.Context, all []operator.Committable) error {
	for _, name := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.world.Observer.fails(Aborting); err != nil {
			return err
		}
		c.world.abort(c.ctx, string(name))
	}
	return nil
}

// Close implements operator.Committer.
func (c *committer) Close() error { return nil }

// positionOf reads a source position as the sources of this job write it.
func positionOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
