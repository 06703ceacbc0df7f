package subtask

import (
	"fmt"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// fileMap is what one checkpoint has of the subtask's shared files, by
// operator. It does not change any more once it is in fileMaps.
type fileMap map[ids.OperatorUID]*operatorFiles

// operatorFiles are the shared files of one operator in one checkpoint.
type operatorFiles struct {
	// byLocal has the handles by the names that the backend uses in this life.
	byLocal map[string]snapshot.StateHandle
	// byPart has, of the restored checkpoint, the handles of each part by the
	// names in that part; for backends that tell (statebackend.Origins).
	byPart map[int]map[string]snapshot.StateHandle
}

// find returns the handle of a file of a later view, if the checkpoint has it.
func (o *operatorFiles) find(f statebackend.File, view statebackend.FileFrozen) (snapshot.StateHandle, bool) {
	if o == nil || !f.Shared {
		return snapshot.StateHandle{}, false
	}
	h, ok := o.byLocal[f.Local]
	if !ok && o.byPart != nil {
		if origins, tells := view.(statebackend.Origins); tells {
			if part, local, known := origins.OriginOf(f.Local); known {
				h, ok = o.byPart[part][local]
			}
		}
	}
	return h, ok && h.Size == f.Size
}

// fileMaps has the files of the checkpoints that later ones may name as their base.
type fileMaps struct {
	of map[ids.CheckpointID]fileMap
	// base is the newest that a barrier has named: the coordinator names no
	// older one any more.
	base ids.CheckpointID
	// published is the newest checkpoint that is known to be.
	published ids.CheckpointID
}

// fileMapsMax bounds the maps beside that of the base: checkpoints under way,
// of which there are 16 at most, and some whose end nobody told. To forget one
// too early costs an upload.
const fileMapsMax = 20

// begin returns the files of the base of a checkpoint that begins, and forgets
// those of older ones. A base that nothing is known of has none.
func (m *fileMaps) begin(base ids.CheckpointID) fileMap {
	if base > m.base {
		m.base = base
		for id := range m.of {
			if id < base {
				delete(m.of, id)
			}
		}
	}
	if base == 0 {
		return nil
	}
	return m.of[base]
}

// put remembers the files of a checkpoint.
func (m *fileMaps) put(id ids.CheckpointID, files fileMap) {
	if len(files) == 0 || id < m.base {
		return
	}
	if m.of == nil {
		m.of = map[ids.CheckpointID]fileMap{}
	}
	m.of[id] = files
	if len(m.of) <= fileMapsMax+1 {
		return
	}
	oldest := id
	for other := range m.of {
		if other != m.base && other < oldest {
			oldest = other
		}
	}
	delete(m.of, oldest)
}

// drop forgets a checkpoint that is given up.
func (m *fileMaps) drop(id ids.CheckpointID) { delete(m.of, id) }

// keyedFiles stores a view in files: those that are new since the base.
func (w *snapshotWriter) keyedFiles(view statebackend.FileFrozen) error {
	uid, backend := w.state.UID, w.cfg.Backend.Name()
	set, err := view.Files(w.ctx)
	if err != nil {
		return fmt.Errorf("bring state backend %s into files: %w", backend, err)
	}
	keyed := snapshot.KeyedStateHandle{
		Range: w.keyGroups(), States: set.States, Backend: backend, Files: make([]snapshot.StateFile, len(set.Files)),
	}
	mine := &operatorFiles{byLocal: map[string]snapshot.StateHandle{}}
	w.files[uid] = mine
	type upload struct {
		at  int // in set.Files
		seq uint32
	}
	var uploads []upload
	for i, f := range set.Files {
		keyed.Files[i].Local = f.Local
		if h, ok := w.base[uid].find(f, view); ok {
			keyed.Files[i].Handle = h
			continue
		}
		// Numbered before they race, so that the same run gives the same names.
		uploads = append(uploads, upload{at: i, seq: w.nextSeq()})
	}
	isStored := make([]bool, len(uploads))
	err = w.cfg.each(len(uploads), func(i int) error {
		f, to := &set.Files[uploads[i].at], &keyed.Files[uploads[i].at].Handle
		var err error
		if f.Shared {
			*to, err = w.cfg.Store.WriteShared(w.ctx, w.location().Base, checkpointstore.SharedFile{
				Attempt: w.cfg.Attempt, Checkpoint: w.barrier.Checkpoint, Subtask: w.id, Seq: uploads[i].seq,
			}, checkpointstore.FileContent(f.Path, f.Size))
		} else {
			*to, err = w.storeAs(uploads[i].seq, checkpointstore.FileContent(f.Path, f.Size))
		}
		isStored[i] = err == nil
		if err != nil {
			return fmt.Errorf("upload file %s of state backend %s: %w", f.Local, backend, err)
		}
		return nil
	})
	if err != nil {
		for i, u := range uploads {
			if isStored[i] {
				w.orphans = append(w.orphans, keyed.Files[u.at].Handle)
			}
		}
		return err
	}
	for i, f := range set.Files {
		h := keyed.Files[i].Handle
		if f.Shared {
			mine.byLocal[f.Local] = h
			w.local.keepLink(f.Path, h)
		} else {
			w.local.keepCopy(f.Path, h)
		}
	}
	w.state.Keyed = append(w.state.Keyed, keyed)
	return nil
}

// each calls do for 0 to n-1; see Config.Each.
func (c *Config) each(n int, do func(i int) error) error {
	if c.Each != nil && n > 1 {
		return c.Each(n, do)
	}
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// addRestored remembers the handles of a restored part. alone says that the
// operator has no other part and owns just its key groups: only then are the
// backend's names those of the part.
func (m fileMap) addRestored(uid ids.OperatorUID, number int, files []snapshot.StateFile, alone bool) {
	o := m[uid]
	if o == nil {
		o = &operatorFiles{byPart: map[int]map[string]snapshot.StateHandle{}}
		m[uid] = o
	}
	byLocal := map[string]snapshot.StateHandle{}
	for _, f := range files {
		if f.Handle.IsShared() {
			byLocal[f.Local] = f.Handle
		}
	}
	o.byPart[number] = byLocal
	if alone {
		o.byLocal = byLocal
	}
}
