package simjob

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	weirids "github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Stored is what a checkpoint of the job holds, read from its files.
type Stored struct {
	// Positions are how far each split has been read.
	Positions []uint64
	// Counts are the count of each key.
	Counts map[uint64]uint64
	// Transactions are the names of the transactions that are to be committed.
	Transactions []string
}

// Position is the position of a split, for Expected.
func (s *Stored) Position(split int) uint64 { return s.Positions[split] }

// Names of the lists that sources and two-phase sinks store.
const (
	splitsList       = "splits"
	finishedList     = "finished"
	committablesList = "committables"
)

// ReadStored reads a checkpoint of the job; read gives the bytes of a handle.
// It refuses key groups that two subtasks stored, or that nobody did (I7).
func (o Options) ReadStored(c *snapshot.CompletedCheckpoint, read func(snapshot.StateHandle) ([]byte, error)) (Stored, error) {
	out := Stored{Positions: make([]uint64, o.Splits), Counts: map[uint64]uint64{}}
	for _, op := range c.Operators {
		covered := make([]bool, o.MaxParallelism)
		for index, st := range op.Subtasks {
			for _, k := range st.Keyed {
				for g := int(k.Range.First); g <= int(k.Range.Last); g++ {
					if covered[g] {
						return out, fmt.Errorf("key group %d of %s is stored twice", g, op.UID)
					}
					covered[g] = true
				}
				data, err := read(k.Handle)
				if err != nil {
					return out, fmt.Errorf("keyed state of %s, subtask %d: %w", op.UID, index, err)
				}
				part := statebackend.RestoredPart{Range: k.Range, Offsets: k.Offsets, States: k.States, Data: data}
				if err := o.readCounts(&part, out.Counts); err != nil {
					return out, fmt.Errorf("keyed state of %s, subtask %d: %w", op.UID, index, err)
				}
			}
			for _, l := range st.Lists {
				data, err := read(l.Handle)
				if err != nil {
					return out, fmt.Errorf("list %s of %s, subtask %d: %w", l.Name, op.UID, index, err)
				}
				if err := o.readList(l, data, &out); err != nil {
					return out, fmt.Errorf("list %s of %s, subtask %d: %w", l.Name, op.UID, index, err)
				}
			}
		}
		for g, ok := range covered {
			if op.UID == Counts && !ok {
				return out, fmt.Errorf("key group %d of %s is not stored", g, op.UID)
			}
		}
	}
	return out, nil
}

func (o Options) readList(l snapshot.OperatorStateHandle, data []byte, out *Stored) error {
	for i, n := range l.Elements {
		if n > int64(len(data)) {
			return fmt.Errorf("element %d has %d bytes, %d are left", i, n, len(data))
		}
		element := data[:n]
		data = data[n:]
		switch l.Name {
		case splitsList:
			split := int(l.Indexes[i])
			if out.Positions[split] != 0 {
				return fmt.Errorf("split %d has two positions", split)
			}
			out.Positions[split] = positionOf(element)
		case finishedList:
			for split := range o.Splits {
				word := split / 64 * 8
				if len(element) >= word+8 && binary.LittleEndian.Uint64(element[word:])&(1<<(split%64)) != 0 {
					out.Positions[split] = o.RecordsPerSplit
				}
			}
		case committablesList:
			out.Transactions = append(out.Transactions, string(element[8:]))
		default:
			return fmt.Errorf("is unknown")
		}
	}
	return nil
}

// readCounts adds the counts in a part of keyed state; no key may be in two parts.
func (o Options) readCounts(part *statebackend.RestoredPart, into map[uint64]uint64) error {
	keys, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		return err
	}
	values, err := codec.For[uint64]()
	if err != nil {
		return err
	}
	return part.Groups(part.Range, func(g keygroup.Group, data []byte) error {
		return statebackend.ReadGroup(data, len(part.States), func(_ int, key, value []byte) error {
			k, _, err := keys.Decode(key)
			if err != nil {
				return err
			}
			if owner := keygroup.OfHash(keys.Hash(&k), o.MaxParallelism); owner != g {
				return fmt.Errorf("key %d is stored in key group %d, it belongs to %d", k, g, owner)
			}
			if _, ok := into[k]; ok {
				return fmt.Errorf("key %d is stored twice", k)
			}
			_, _, encoded, err := statebackend.ValueHeader(value)
			if err != nil {
				return err
			}
			var n uint64
			if _, err := values.Decode(encoded, &n); err != nil {
				return err
			}
			into[k] = n
			return nil
		})
	})
}

// counts reads the live keyed state of a counter through a snapshot of it.
func (o Options) counts(state statebackend.KeyedState, r keygroup.Range) (map[uint64]uint64, error) {
	f, err := state.Freeze()
	if err != nil {
		return nil, err
	}
	defer f.Release()
	var data bytes.Buffer
	offsets, states, err := f.WriteSnapshot(&data)
	if err != nil {
		return nil, err
	}
	out := map[uint64]uint64{}
	part := statebackend.RestoredPart{Range: r, Offsets: offsets, States: states, Data: data.Bytes()}
	return out, o.readCounts(&part, out)
}

// TransactionOf takes a transaction's name apart.
func TransactionOf(name string) (job weirids.JobID, attempt weirids.AttemptID, checkpoint weirids.CheckpointID) {
	p := splitName(name)
	return p.job, p.attempt, p.checkpoint
}
