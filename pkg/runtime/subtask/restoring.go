package subtask

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// restoration is the work of reading what the operators are restored from.
type restoration struct {
	*Subtask
	// local is what earlier attempts kept on this host; nil for nothing.
	local localIndex
	// files becomes the map of the restored checkpoint.
	files  fileMap
	report RestoredReport
	// linked are the files of the operator that came from this host, unread.
	linked []snapshot.StateHandle
	// dir has the files of the operator that is being restored; empty before
	// there are any.
	dir string
	// flight is what the input channels will deliver first, of which the head of a
	// loop has put spilled bytes on disk. They are the channels' when the work is done.
	flight  [][]element.Frame
	spilled int64
}

// restoresOwn reports whether the restored checkpoint is in the directory that
// the job writes its own checkpoints to. Only then do its handles and those of
// the job's own checkpoints name files of one directory.
func (s *Subtask) restoresOwn() bool {
	return s.cfg.RestoredCheckpoint != 0 && s.cfg.RestoreBase == checkpointstore.JobBase(s.cfg.CheckpointDir, s.cfg.Job)
}

// readState reads what the operator at that place of the chain is restored from.
func (x *restoration) readState(ctx context.Context, at int, states []snapshot.OperatorSubtaskState) (*operator.Restored, error) {
	r := &operator.Restored{
		Checkpoint: x.cfg.RestoredCheckpoint, EndOfData: x.cfg.Deployment.EndOfData,
		Lists: map[string][]operator.ListElement{},
	}
	own := x.chain.Operators[at].Context.KeyGroups
	var inFiles []snapshot.KeyedStateHandle
	for _, st := range states {
		for _, k := range st.Keyed {
			if k.IsInFiles() {
				if _, touches := k.Range.Intersect(own); touches {
					inFiles = append(inFiles, k)
				}
				continue
			}
			data, err := x.readHandle(ctx, k.Handle)
			if err != nil {
				return nil, err
			}
			r.Keyed = append(r.Keyed, statebackend.RestoredPart{
				Number: len(r.Keyed), Range: k.Range, Offsets: k.Offsets, States: k.States, Data: data,
			})
		}
		for _, l := range st.Lists {
			elements, err := x.readList(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", l.Name, err)
			}
			r.Lists[l.Name] = append(r.Lists[l.Name], elements...)
			for _, m := range l.States {
				if m.Kind == snapshot.DroppedKind {
					r.Dropped = append(r.Dropped, m.Name)
				}
			}
		}
	}
	parts, err := x.readFiles(ctx, at, len(r.Keyed), inFiles)
	r.Keyed = append(r.Keyed, parts...)
	return r, err
}

// readFiles brings keyed state in files to local disk. Parts are numbered from first.
func (x *restoration) readFiles(ctx context.Context, at, first int, in []snapshot.KeyedStateHandle) ([]statebackend.RestoredPart, error) {
	if len(in) == 0 {
		return nil, nil
	}
	if x.cfg.Dir == "" {
		return nil, operator.Permanentf("the state is in files, and the subtask has no directory to bring them to")
	}
	own := x.chain.Operators[at].Context.KeyGroups
	parts := make([]statebackend.RestoredPart, len(in))
	var files []restoredFile
	for i, k := range in {
		if k.Backend != x.cfg.Backend.Name() && x.cfg.FileReaders[k.Backend] == nil {
			return nil, operator.Permanentf("the state is in files of state backend %q and the job runs with %q: "+
				"restore with state.backend.type %s, or from a savepoint, which every state backend reads",
				k.Backend, x.cfg.Backend.Name(), k.Backend)
		}
		x.dir = filepath.Join(x.cfg.Dir, fmt.Sprintf("restore-%d", at))
		dir := filepath.Join(x.dir, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory to restore from: %w", err)
		}
		p := &parts[i]
		*p = statebackend.RestoredPart{Number: first + i, Range: k.Range, States: k.States, Backend: k.Backend}
		for _, f := range k.Files {
			path := filepath.Join(dir, f.Local)
			p.Files = append(p.Files, statebackend.File{Local: f.Local, Path: path, Size: f.Handle.Size, Shared: f.Handle.IsShared()})
			files = append(files, restoredFile{of: f, path: path})
		}
	}
	if err := x.bring(ctx, files); err != nil {
		return nil, err
	}
	for i, k := range in {
		if k.Backend == x.cfg.Backend.Name() {
			x.files.addRestored(x.chain.Operators[at].Context.Operator, first+i, k.Files, len(in) == 1 && k.Range == own)
			continue
		}
		canonical, err := x.cfg.FileReaders[k.Backend](ctx, parts[i], own, x.cfg.Graph.MaxParallelism)
		if err != nil {
			return nil, fmt.Errorf("read files of state backend %q for %q: %w", k.Backend, x.cfg.Backend.Name(), err)
		}
		canonical.Number = first + i
		parts[i] = canonical
	}
	return parts, nil
}

// restoredFile is a file on its way to local disk.
type restoredFile struct {
	of    snapshot.StateFile
	path  string
	local bool // it was there
}

// bring links the files that are on this host and fetches the others.
func (x *restoration) bring(ctx context.Context, files []restoredFile) error {
	err := x.cfg.each(len(files), func(i int) error {
		f := &files[i]
		if f.local = x.local.link(f.of.Handle, f.path); f.local {
			return nil
		}
		err := x.readTwice(ctx, func() error {
			return x.cfg.Store.FetchState(ctx, x.cfg.RestoreBase, f.of.Handle, f.path)
		})
		if err != nil {
			return fmt.Errorf("file %s: %w", f.of.Local, err)
		}
		return nil
	})
	for _, f := range files {
		x.count(f.of.Handle, f.local)
		if f.local {
			x.linked = append(x.linked, f.of.Handle)
		}
	}
	return err
}

// count adds what was read to the report. What came in the handle was not.
func (x *restoration) count(h snapshot.StateHandle, local bool) {
	switch {
	case h.IsInline():
	case local:
		x.report.FilesLocal++
		x.report.BytesLocal += h.Size
	default:
		x.report.FilesFetched++
		x.report.BytesFetched += h.Size
	}
}

// kindOfRestoreError says what it means that an operator cannot be restored
// from what was read. Files of this host were taken unread: they may be what is
// broken, so they go, and the next attempt reads those of the store.
func (x *restoration) kindOfRestoreError() coordinator.FailureKind {
	if len(x.linked) == 0 {
		return coordinator.UserFailure
	}
	for _, h := range x.linked {
		x.local.drop(h)
	}
	return coordinator.LostProcess
}

// tidy removes the files of the operator, which it has or never will.
func (x *restoration) tidy() error {
	if x.dir == "" {
		return nil
	}
	dir := x.dir
	x.dir, x.linked = "", nil
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove files that were restored from: %w", err)
	}
	return nil
}

// readHandle reads the bytes behind a handle.
func (x *restoration) readHandle(ctx context.Context, h snapshot.StateHandle) ([]byte, error) {
	if data, ok := x.local.read(h); ok {
		x.count(h, true)
		return data, nil
	}
	var data []byte
	err := x.readTwice(ctx, func() (err error) {
		data, err = x.cfg.Store.ReadState(ctx, x.cfg.RestoreBase, h)
		return err
	})
	if err != nil {
		return nil, err
	}
	x.count(h, false)
	return data, nil
}

func (x *restoration) readList(ctx context.Context, l snapshot.OperatorStateHandle) ([]operator.ListElement, error) {
	data, err := x.readHandle(ctx, l.Handle)
	if err != nil {
		return nil, err
	}
	all := make([]operator.ListElement, len(l.Elements))
	for i, n := range l.Elements {
		if n < 0 || n > int64(len(data)) {
			return nil, operator.Permanentf("element %d has %d bytes of %d left: the handle does not fit its file", i, n, len(data))
		}
		all[i].Bytes, data = data[:n:n], data[n:]
		if l.Redistribution == snapshot.ByIndex {
			if i >= len(l.Indexes) {
				return nil, operator.Permanentf("%d elements but %d indexes", len(l.Elements), len(l.Indexes))
			}
			all[i].Index = l.Indexes[i]
		}
	}
	if l.Selected == nil {
		return all, nil
	}
	out := make([]operator.ListElement, len(l.Selected))
	for i, n := range l.Selected {
		if n < 0 || int(n) >= len(all) {
			return nil, operator.Permanentf("element %d of %d is selected", n, len(all))
		}
		out[i] = all[n]
	}
	return out, nil
}
