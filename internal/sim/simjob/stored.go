package simjob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/graph"
	weirids "github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/filetest"
	"github.com/weirstream/weir/pkg/timer"
)

// Stored is what a checkpoint of the job holds, read from its files, or what a
// subtask has restored.
type Stored struct {
	// Positions are how far each split has been read.
	Positions []uint64
	// Lines are the content of all states.
	Lines Lines
	// Waiting are the output records that timers are still to emit.
	Waiting []Count
	// Flight are the records that barriers overtook.
	Flight InFlight
	// Due are the tokens that wait for timers of a flow, by node.
	Due map[int][]Token
	// Parts are the elements of the split list, Groups what the union list
	// has: of each key group the highest count.
	Parts  []uint64
	Groups map[uint32]uint64
	// Watermarks are those of the subtasks of each operator that has timers, as
	// they are stored.
	Watermarks map[ids][]operator.ListElement
	// InFiles: keyed state was in files of its backend.
	InFiles bool
	// Transactions are the names of the transactions that are to be committed.
	Transactions []string
}

func newStored() *Stored {
	return &Stored{
		Lines: Lines{}, Groups: map[uint32]uint64{}, Due: map[int][]Token{}, Watermarks: map[ids][]operator.ListElement{},
		Flight: InFlight{Tokens: map[Channel][]Token{}, Events: map[ids][]Event{}},
	}
}

// Position is the position of a split, for Expected.
func (s *Stored) Position(split int) uint64 { return s.Positions[split] }

// Names of the lists that operators of package operator store.
const (
	splitsList       = "splits"
	finishedList     = "finished"
	committablesList = "committables"
	watermarkList    = "watermark"
	splitTimesList   = "split-times"
)

// ReadStored reads a checkpoint of the job, whose code and graph are given; read gives the bytes of a handle,
// scratch is a directory for the files of its state backend, which are kept
// there for the next checkpoint of the job. It refuses key groups that two subtasks stored, or that nobody did (I7).
func (o Options) ReadStored(c *snapshot.CompletedCheckpoint, code *operator.Program, g *graph.ExecutionGraph, scratch string, read func(snapshot.StateHandle) ([]byte, error)) (*Stored, error) {
	out := newStored()
	out.Positions = make([]uint64, o.splits())
	for _, op := range c.Operators {
		if err := o.readOperator(&op, scratch, read, out); err != nil {
			return out, err
		}
	}
	for _, in := range c.InFlight {
		data, err := read(in.Handle)
		for _, p := range in.Parts {
			if err == nil {
				err = o.readInFlight(code, g.Edges[p.Edge].Edge, data[p.Offset:p.Offset+p.Length], &out.Flight)
			}
		}
		if err != nil {
			return out, err
		}
	}
	if o.Stateful {
		out.Finish()
	}
	return out, nil
}

func (o Options) readOperator(op *snapshot.OperatorState, scratch string, read func(snapshot.StateHandle) ([]byte, error), out *Stored) error {
	covered := map[bool][]bool{false: make([]bool, o.MaxParallelism), true: make([]bool, o.MaxParallelism)}
	var parts []statebackend.RestoredPart
	lists := map[string][][]byte{}
	for index, st := range op.Subtasks {
		for _, k := range st.Keyed {
			timers := slices.ContainsFunc(k.States, func(m snapshot.StateMeta) bool { return m.Kind == timer.Stored })
			for g := int(k.Range.First); g <= int(k.Range.Last); g++ {
				if covered[timers][g] {
					return fmt.Errorf("key group %d of %s is stored twice", g, op.UID)
				}
				covered[timers][g] = true
			}
			part, err := readKeyed(k, scratch, read)
			if err != nil {
				return fmt.Errorf("keyed state of %s, subtask %d: %w", op.UID, index, err)
			}
			parts = append(parts, part)
			out.InFiles = out.InFiles || k.IsInFiles()
		}
		for _, l := range st.Lists {
			data, err := read(l.Handle)
			if err == nil {
				err = o.readList(op.UID, l, data, lists, out)
			}
			if err != nil {
				return fmt.Errorf("list %s of %s, subtask %d: %w", l.Name, op.UID, index, err)
			}
		}
	}
	if !o.isKeyed(op.UID) {
		if len(parts) > 0 {
			return fmt.Errorf("%s has keyed state", op.UID)
		}
		return nil
	}
	for g, ok := range covered[false] {
		if !ok {
			return fmt.Errorf("key group %d of %s is not stored", g, op.UID)
		}
	}
	if err := o.audit(op.UID, parts, lists, out); err != nil {
		return fmt.Errorf("state of %s: %w", op.UID, err)
	}
	return nil
}

// isKeyed reports whether an operator has keyed state.
func (o Options) isKeyed(uid ids) bool {
	if o.Flow != nil {
		node, ok := o.Flow.nodeOf(uid)
		return ok && o.Flow.Nodes[node].Kind.isKeyed()
	}
	return uid == Counts || uid == Ruled
}

// firstSplit is the first split of a source.
func (o Options) firstSplit(uid ids) int {
	if o.Flow != nil {
		node, _ := o.Flow.nodeOf(uid)
		return o.Flow.Nodes[node].First
	}
	if uid == Rules {
		return o.Splits
	}
	return 0
}

// readKeyed reads keyed state; what is in files by way of files in scratch.
func readKeyed(k snapshot.KeyedStateHandle, scratch string, read func(snapshot.StateHandle) ([]byte, error)) (statebackend.RestoredPart, error) {
	if !k.IsInFiles() {
		data, err := read(k.Handle)
		return statebackend.RestoredPart{Range: k.Range, Offsets: k.Offsets, States: k.States, Data: data}, err
	}
	if k.Backend != filetest.Name {
		return statebackend.RestoredPart{}, fmt.Errorf("it is in files of state backend %q", k.Backend)
	}
	part := statebackend.RestoredPart{Range: k.Range, States: k.States, Backend: k.Backend}
	for _, f := range k.Files {
		// Files that checkpoints share are written once.
		path := filepath.Join(scratch, strings.ReplaceAll(f.Handle.Name, "/", "_"))
		if f.Handle.IsInline() {
			path = filepath.Join(scratch, "inline-"+f.Local)
		}
		_, err := os.Stat(path)
		if f.Handle.IsInline() || errors.Is(err, fs.ErrNotExist) {
			var data []byte
			if data, err = read(f.Handle); err == nil {
				err = os.WriteFile(path, data, 0o600)
			}
		}
		if err != nil {
			return part, fmt.Errorf("file %s: %w", f.Local, err)
		}
		part.Files = append(part.Files, statebackend.File{Local: f.Local, Path: path, Size: f.Handle.Size, Shared: f.Handle.IsShared()})
	}
	return filetest.Canonical(context.Background(), part, k.Range, 0)
}

func (o Options) readList(uid ids, l snapshot.OperatorStateHandle, data []byte, lists map[string][][]byte, out *Stored) error {
	first := o.firstSplit(uid)
	for i, n := range l.Elements {
		if n > int64(len(data)) {
			return fmt.Errorf("element %d has %d bytes, %d are left", i, n, len(data))
		}
		element := data[:n]
		data = data[n:]
		switch l.Name {
		case splitsList:
			split := first + int(l.Indexes[i])
			if out.Positions[split] != 0 {
				return fmt.Errorf("split %d has two positions", split)
			}
			out.Positions[split] = positionOf(element)
		case finishedList:
			for index := range o.splits() - first {
				word := index / 64 * 8
				if len(element) >= word+8 && binary.LittleEndian.Uint64(element[word:])&(1<<(index%64)) != 0 {
					out.Positions[first+index] = o.Records(first + index)
				}
			}
		case committablesList:
			out.Transactions = append(out.Transactions, string(element[8:]))
		case watermarkList:
			out.Watermarks[uid] = append(out.Watermarks[uid], operator.ListElement{Bytes: element})
		case splitTimesList: // the lowest that a watermark is made from; late records tell
		default:
			lists[l.Name] = append(lists[l.Name], element)
		}
	}
	return nil
}

// TransactionOf takes a transaction's name apart.
func TransactionOf(name string) (job weirids.JobID, attempt weirids.AttemptID, checkpoint weirids.CheckpointID) {
	p := splitName(name)
	return p.job, p.attempt, p.checkpoint
}
