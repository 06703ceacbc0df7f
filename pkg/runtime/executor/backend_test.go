package executor_test

import (
	"context"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// keeping is an operator with keyed state beside the one that it is made of.
// It notes what it restores.
type keeping struct {
	operator.Operator
	keyed    *state.Keyed[uint64]
	value    state.Value[uint64]
	backend  string
	restored map[uint64]uint64
}

// Open implements operator.Operator.
func (k *keeping) Open(ctx *operator.Context) (err error) {
	k.backend = ctx.Backend.Name()
	if k.keyed, k.value, err = openKept(ctx.Backend, ctx.KeyGroups, ctx.MaxParallelism, ctx.Dir); err != nil {
		return err
	}
	return k.Operator.Open(ctx)
}

func openKept(b statebackend.Backend, r keygroup.Range, maxParallelism int, dir string) (*state.Keyed[uint64], state.Value[uint64], error) {
	keyed, err := state.NewKeyed[uint64](state.Options{Operator: "total", Range: r, MaxParallelism: maxParallelism, Backend: b, Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	value, err := state.NewValue[uint64](keyed, "value")
	return keyed, value, err
}

// Restore implements operator.Operator.
func (k *keeping) Restore(_ context.Context, r *operator.Restored) error {
	if err := k.keyed.Backend().Restore(r.Keyed); err != nil {
		return err
	}
	for key := range uint64(keptKeys) {
		if err := k.keyed.SetCurrentKey(key); err != nil {
			return err
		}
		v, found, err := k.value.Get()
		if err != nil {
			return err
		}
		if found {
			k.restored[key] = v
		}
	}
	return nil
}

// Close implements operator.Operator.
func (k *keeping) Close() error { return errors.Join(k.keyed.Backend().Close(), k.Operator.Close()) }

const keptKeys = 100

// pebbleFiles are the handle of a state that pebble stored in files, the bytes
// of which it holds.
func pebbleFiles(t *testing.T) (_ snapshot.KeyedStateHandle, err error) {
	b := pebble.New(pebble.Options{})
	defer func() { err = errors.Join(err, b.Close()) }()
	all := keygroup.RangeOf(0, 1, keygroup.DefaultMaxParallelism)
	keyed, value, err := openKept(b, all, keygroup.DefaultMaxParallelism, filepath.Join(t.TempDir(), "state"))
	if err != nil {
		return snapshot.KeyedStateHandle{}, err
	}
	defer func() { err = errors.Join(err, keyed.Backend().Close()) }()
	if err := keyed.Backend().Restore(nil); err != nil {
		return snapshot.KeyedStateHandle{}, err
	}
	for key := range uint64(keptKeys) {
		if err := errors.Join(keyed.SetCurrentKey(key), value.Set(key*key)); err != nil {
			return snapshot.KeyedStateHandle{}, err
		}
	}
	frozen, err := keyed.Backend().Freeze()
	if err != nil {
		return snapshot.KeyedStateHandle{}, err
	}
	defer frozen.Release()
	set, err := frozen.(statebackend.FileFrozen).Files(t.Context())
	h := snapshot.KeyedStateHandle{Range: all, States: set.States, Backend: pebble.Name}
	for _, f := range set.Files {
		content, readErr := os.ReadFile(f.Path)
		err = errors.Join(err, readErr)
		h.Files = append(h.Files, snapshot.StateFile{Local: f.Local, Handle: snapshot.StateHandle{
			Size: f.Size, CRC32C: crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)), Inline: content,
		}})
	}
	return h, err
}

// An executor whose backend is memory restores what pebble has stored in files.
func TestMemoryRestoresFilesOfPebble(t *testing.T) {
	sink, kept := &total{}, &keeping{restored: map[uint64]uint64{}}
	p := program(t, numbers{splits: 1, each: 10}, sink)
	node := p.Nodes["total"]
	inner := node.New
	node.New = func(out func(string) any) (operator.Instance, error) {
		instance, err := inner(out)
		kept.Operator, instance.Operator = instance.Operator, kept
		return instance, err
	}
	handle, err := pebbleFiles(t)
	if err != nil {
		t.Fatal(err)
	}
	part := snapshot.OperatorSubtaskState{UID: "total", Keyed: []snapshot.KeyedStateHandle{handle}}.ToProto()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		j.dir = dir
		j.amend = func(m *pb.DeployTasks) {
			m.RestoredCheckpoint, m.RestoreBase = 1, "memory://checkpoints"
			for _, task := range m.GetTasks() {
				if len(task.GetSplits()) == 0 {
					task.Restore = append(task.Restore, part)
				}
			}
		}
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		synctest.Wait()
		j.deploy(t, p, 1)
		synctest.Wait()
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_RUNNING)); n != 2 {
			t.Errorf("%d tasks run, want 2: %v", n, j.reports)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
	if kept.backend != "memory" || len(kept.restored) != keptKeys {
		t.Fatalf("backend %q restored %d keys of %d", kept.backend, len(kept.restored), keptKeys)
	}
	for key, v := range kept.restored {
		if v != key*key {
			t.Errorf("key %d has %d", key, v)
		}
	}
}
