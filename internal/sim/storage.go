package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
)

// Where things are stored.
const (
	storeRoot     = "mem://store"
	checkpointDir = storeRoot + "/checkpoints"
	savepointDir  = storeRoot + "/savepoints"
	haDir         = storeRoot + "/ha"
	clusterID     = "cluster"
)

// storage is the one object store of the cluster: in memory, with faults in
// front and an observer between.
type storage struct {
	c       *cluster
	objects *observed
	faulty  *faulty.Store
	// checkpoints and records are what processes use; exactCheckpoints and
	// exactRecords see the same objects without faults, for checkers.
	checkpoints, exactCheckpoints *checkpointstore.Store
	records, exactRecords         *checkpointstore.ClusterStore
	outageUntil                   time.Duration
	// trouble: the last call was left with an unknown outcome. The next, which
	// would tell, often fails as well: faults come in bursts.
	trouble bool
	// caller is the process whose call is being carried out.
	caller *process
}

func newStorage(c *cluster) *storage {
	s := &storage{c: c}
	s.objects = &observed{Store: memory.New(storeRoot), c: c}
	s.faulty = faulty.New(s.objects, s.decide, nil)
	s.checkpoints, s.records = stores(s.faulty)
	s.exactCheckpoints, s.exactRecords = stores(s.objects.Store)
	return s
}

func stores(root objectstore.Store) (*checkpointstore.Store, *checkpointstore.ClusterStore) {
	open := func(uri string) (objectstore.Store, error) {
		name, ok := strings.CutPrefix(uri, storeRoot+"/")
		if !ok {
			return nil, fmt.Errorf("%s is not below %s", uri, storeRoot)
		}
		return objectstore.Sub(root, name), nil
	}
	ha, err := open(checkpointstore.ClusterURI(haDir, clusterID))
	if err != nil {
		panic(err)
	}
	return checkpointstore.New(open).OneAtATime(), checkpointstore.NewClusterStore(ha)
}

// decide draws the fault of one call.
func (s *storage) decide(call faulty.Call) faulty.Fault {
	c := s.c
	if s.caller != nil && s.caller.doomed {
		return faulty.Fault{Before: context.Canceled}
	}
	if c.healed {
		return faulty.Fault{}
	}
	trouble := s.trouble && c.chance(0.5)
	s.trouble = false
	isWrite := call.Op == faulty.Put || call.Op == faulty.PutIf || call.Op == faulty.Delete
	switch {
	case trouble, c.now < s.outageUntil:
		return faulty.Fault{Before: faulty.ErrInjected}
	case c.happens(StoreBefore):
		return faulty.Fault{Before: faulty.ErrInjected}
	case c.happens(StoreAfter):
		s.trouble = true
		return faulty.Fault{After: faulty.ErrInjected}
	case isWrite && s.caller != nil && s.caller.onDeath != nil && c.happens(CrashInWrite):
		s.caller.doomed = true
		if c.chance(0.5) {
			return faulty.Fault{Before: faulty.ErrInjected}
		}
		return faulty.Fault{After: faulty.ErrInjected}
	}
	return faulty.Fault{}
}

// happens draws whether a fault happens to a call, and counts it.
func (c *cluster) happens(kind FaultKind) bool {
	if c.healed || !c.chance(c.options.Odds[kind]) {
		return false
	}
	c.result.Faults[kind]++
	return true
}

// storeDelay draws how long the next call takes.
func (c *cluster) storeDelay() time.Duration {
	d := c.between(c.options.StoreMax/4, c.options.StoreMax)
	if c.happens(StoreSlow) {
		d *= time.Duration(10 + c.random.IntN(40))
	}
	return d
}

// observed shows every change of the store to the checkers.
type observed struct {
	*memory.Store
	c *cluster
}

var _ objectstore.Store = (*observed)(nil)

// Put implements objectstore.Store.
func (o *observed) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if o.c.strikes(AcknowledgesBeforePersisted) {
		return write(io.Discard)
	}
	var size int64
	err := o.Store.Put(ctx, name, func(w io.Writer) error {
		counted := &countingWriter{w: w}
		err := write(counted)
		size = counted.n
		return err
	})
	if err == nil {
		o.c.trace.add("store: put %s, %d bytes", name, size)
		o.c.checks.written[name] = o.c.now
		if isShared(name) {
			o.c.result.SharedUploaded++
		}
	}
	return err
}

// PutIf implements objectstore.Store.
func (o *observed) PutIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	if o.c.happens(StoreLate) {
		o.c.storage.trouble = true
		content = bytes.Clone(content)
		o.c.after(o.c.between(o.c.options.StoreMax, 2*time.Second), "late write", func() {
			if _, err := o.put(context.Background(), name, content, cond); err != nil {
				o.c.trace.add("store: late put-if %s fails: %v", name, err)
			} else if o.c.checks.deleted[name] {
				o.c.returns(name, content)
			}
		})
		return "", &objectstore.Error{Op: "put-if", URI: o.URI(name), Err: objectstore.ErrUnknownOutcome}
	}
	return o.put(ctx, name, content, cond)
}

func (o *observed) put(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	before, _, _ := o.Read(ctx, name, 1<<30)
	etag, err := o.Store.PutIf(ctx, name, content, cond)
	if err == nil {
		o.c.trace.add("store: put-if %s, %d bytes", name, len(content))
		o.c.checks.written[name] = o.c.now
		o.c.checkRecordWritten(name, before, content)
	}
	return etag, err
}

// Delete implements objectstore.Store.
func (o *observed) Delete(ctx context.Context, name string) error {
	if _, _, err := o.Read(ctx, name, 1<<30); err != nil {
		return nil // nothing there, nothing changes
	}
	err := o.Store.Delete(ctx, name)
	if err == nil {
		o.c.trace.add("store: delete %s", name)
		if isShared(name) {
			o.c.result.SharedDeleted++
		}
		o.c.checkDeleted(name)
	}
	return err
}

// isShared reports whether an object is a shared file.
func isShared(name string) bool { return strings.Contains(name, "/shared/") }

// content is that of an object, and whether there is one.
func (o *observed) content(name string) ([]byte, bool) {
	content, _, err := o.Read(context.Background(), name, 1<<30)
	return content, err == nil
}

// exists reports whether an object is stored, and its size.
func (o *observed) exists(name string) (int64, bool) {
	content, _, err := o.Read(context.Background(), name, 1<<30)
	return int64(len(content)), err == nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.n += int64(n)
	return n, err
}
