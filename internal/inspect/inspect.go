package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Stored is a checkpoint or savepoint whose metadata has been read. Its
// methods may be called one after the other in any order.
type Stored struct {
	store      *checkpointstore.Store
	path, base string
	checkpoint *snapshot.CompletedCheckpoint
	readers    map[string]FileReader
}

// FileReader makes of keyed state in files of a state backend, which are local,
// a part laid out by key group, with the same States. It works in dir, which
// it makes and removes.
type FileReader func(ctx context.Context, dir string, part statebackend.RestoredPart, groups keygroup.Range) (statebackend.RestoredPart, error)

// Open reads the metadata of the checkpoint or savepoint at a path or URI. The
// error is objectstore.ErrNotExist if there is none. readers read the files of
// state backends, by their names.
func Open(ctx context.Context, opener checkpointstore.Opener, path string, readers map[string]FileReader) (*Stored, error) {
	store := checkpointstore.New(opener)
	checkpoint, base, err := store.LoadMetadata(ctx, path)
	if err != nil {
		return nil, err
	}
	return &Stored{store: store, path: path, base: base, checkpoint: checkpoint, readers: readers}, nil
}

// piece is one stored piece of state with where it belongs.
type piece struct {
	operator *snapshot.OperatorState
	subtask  int
	// One of these is set.
	keyed    *snapshot.KeyedStateHandle
	list     *snapshot.OperatorStateHandle
	inFlight *snapshot.InFlight // of no operator: of the edges that its parts name
}

// handles are those of its files: one, unless it is in files of its backend.
func (p piece) handles() []snapshot.StateHandle {
	switch {
	case p.list != nil:
		return []snapshot.StateHandle{p.list.Handle}
	case p.inFlight != nil:
		return []snapshot.StateHandle{p.inFlight.Handle}
	}
	var all []snapshot.StateHandle
	p.keyed.EachHandle(func(h snapshot.StateHandle) { all = append(all, h) })
	return all
}

// pieces lists all pieces in the order of the metadata.
func (s *Stored) pieces() []piece {
	var all []piece
	for i := range s.checkpoint.Operators {
		op := &s.checkpoint.Operators[i]
		for j := range op.Subtasks {
			for k := range op.Subtasks[j].Keyed {
				all = append(all, piece{operator: op, subtask: j, keyed: &op.Subtasks[j].Keyed[k]})
			}
			for k := range op.Subtasks[j].Lists {
				all = append(all, piece{operator: op, subtask: j, list: &op.Subtasks[j].Lists[k]})
			}
		}
	}
	for i := range s.checkpoint.InFlight {
		all = append(all, piece{inFlight: &s.checkpoint.InFlight[i]})
	}
	return all
}

// eachGroup reads a piece of keyed state group by group, in bounded memory,
// and compares the whole with its checksum at the end. Errors name the file.
func (s *Stored) eachGroup(ctx context.Context, k *snapshot.KeyedStateHandle, group func(g keygroup.Group, bytes []byte) error) (err error) {
	reader, err := s.store.OpenState(ctx, s.base, k.Handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	if _, err := io.CopyN(io.Discard, reader, k.Offsets[0]); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for i := range k.Range.Len() {
		// The buffer grows with the bytes that arrive, not with what the offsets say.
		content, err := io.ReadAll(io.LimitReader(reader, k.Offsets[i+1]-k.Offsets[i]))
		if err != nil {
			return err
		}
		if err := group(k.Range.First+keygroup.Group(i), content); err != nil {
			return fmt.Errorf("%s, key group %d: %w", nameOf(k.Handle), int(k.Range.First)+i, err)
		}
	}
	_, err = io.Copy(io.Discard, reader)
	return err
}

// eachEntry reads the entries of all states of a piece of keyed state. key and
// value are good until entry returns.
func (s *Stored) eachEntry(ctx context.Context, p piece, entry func(g keygroup.Group, state int, key, value []byte) error) error {
	k := p.keyed
	if k.IsInFiles() {
		return s.eachEntryInFiles(ctx, p, entry)
	}
	return s.eachGroup(ctx, k, func(g keygroup.Group, bytes []byte) error {
		return statebackend.ReadGroup(bytes, len(k.States), func(state int, key, value []byte) error {
			return entry(g, state, key, value)
		})
	})
}

func nameOf(h snapshot.StateHandle) string {
	if h.IsInline() {
		return "inline state"
	}
	return h.Name
}

// problemOf says in words what is wrong with a file.
func problemOf(err error) string {
	if errors.Is(err, objectstore.ErrNotExist) {
		return "missing"
	}
	return err.Error()
}

// isUnknown reports whether nothing is known of a file, because the store did
// not answer or nobody waits any more.
func isUnknown(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrDenied)
}
