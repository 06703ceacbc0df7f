package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// How operator state is stored: as lists of package snapshot. metaList says in
// every subtask which lists there are, and with which codec; broadcastList is
// the snapshot of all broadcast maps as one element, of subtask 0 only, which
// all subtasks get back. What users register has listPrefix before its name.
const (
	metaList      = DescriptionsList
	broadcastList = BroadcastList
	listPrefix    = "list/"
)

// DescriptionsList is the stored list that describes the lists which a program
// has registered, by one element each.
const DescriptionsList = "state/lists"

// BroadcastList is the stored list that has the snapshot of all broadcast maps
// as its one element.
const BroadcastList = "state/broadcast"

// ReadBroadcast reads the element of BroadcastList: the descriptions of the maps,
// and their entries as those of one key group. The key of an entry is a
// struct of a bool, which says nothing, and the user key.
func ReadBroadcast(element []byte) (statebackend.RestoredPart, error) {
	return decodeBroadcast(element)
}

// ListDescription describes a stored list.
type ListDescription struct {
	// Name is what it was registered as, StoredAs the name of the stored list.
	Name, StoredAs string
	Codec, Schema  string
}

// DescribeList reads an element of DescriptionsList.
func DescribeList(element []byte) (ListDescription, error) {
	m, err := decodeListMeta(element)
	return ListDescription{Name: m.name, StoredAs: m.storedAs(), Codec: m.codec, Schema: m.schema}, err
}

var errRegisteredLate = errors.New("states are registered when the operator is opened, not later: stored state is attached by then")

// listMeta describes a registered list.
type listMeta struct {
	name   string
	mode   snapshot.Redistribution
	codec  string
	schema string
}

// storedAs is the name of the stored list. The prefix keeps it apart from those
// of the runtime.
func (m listMeta) storedAs() string { return listPrefix + m.name }

func (m listMeta) describe() snapshot.StateMeta {
	return snapshot.StateMeta{Name: m.storedAs(), Kind: snapshot.ListKind, Codec: m.codec, Schema: m.schema}
}

// broadcastMaps describes broadcast maps, which are maps of one key, as what
// they are.
func broadcastMaps(maps []snapshot.StateMeta) []snapshot.StateMeta {
	maps = slices.Clone(maps)
	for i := range maps {
		maps[i].Kind = snapshot.BroadcastKind
	}
	return maps
}

func (m listMeta) encode() []byte {
	return appendStrings([]byte{byte(m.mode)}, m.name, m.codec, m.schema)
}

func decodeListMeta(b []byte) (listMeta, error) {
	if len(b) == 0 {
		return listMeta{}, fmt.Errorf("%w: description of no list", statebackend.ErrCorrupt)
	}
	m := listMeta{mode: snapshot.Redistribution(b[0])}
	_, err := cutStrings(b[1:], &m.name, &m.codec, &m.schema)
	return m, err
}

func appendStrings(dst []byte, all ...string) []byte {
	for _, s := range all {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return dst
}

func cutStrings(src []byte, to ...*string) (rest []byte, err error) {
	for _, s := range to {
		n, used := binary.Uvarint(src)
		if used <= 0 || n > uint64(len(src)-used) {
			return nil, fmt.Errorf("%w: description of operator state ends early", statebackend.ErrCorrupt)
		}
		*s, src = string(src[used:used+int(n)]), src[used+int(n):]
	}
	return src, nil
}

// FrozenOperator is operator state at one moment. It belongs to one goroutine
// at a time, which need not be the subtask's.
type FrozenOperator struct {
	metas     []listMeta
	encode    []func() [][]byte
	broadcast statebackend.Frozen
}

// Freeze marks the present content. It returns nil if nothing is registered.
func (o *Operator) Freeze() (*FrozenOperator, error) {
	if !o.HasStates() {
		return nil, nil
	}
	f := &FrozenOperator{}
	for _, l := range o.lists {
		f.metas = append(f.metas, l.meta())
		f.encode = append(f.encode, l.freeze())
	}
	if o.broadcast != nil && o.index == 0 {
		var err error
		if f.broadcast, err = o.broadcast.Backend().Freeze(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Write gives the stored lists to a writer, as operator.SnapshotWriter takes them.
func (f *FrozenOperator) Write(list func(name string, mode snapshot.Redistribution, elements [][]byte, indexes []int64, states ...snapshot.StateMeta) error) (err error) {
	defer codec.Recover(&err)
	var metas [][]byte
	for i, m := range f.metas {
		metas = append(metas, m.encode())
		if err := list(m.storedAs(), m.mode, f.encode[i](), nil, m.describe()); err != nil {
			return err
		}
	}
	if err := list(metaList, snapshot.Union, metas, nil); err != nil {
		return err
	}
	if f.broadcast == nil {
		return nil
	}
	var data bytes.Buffer
	_, states, err := f.broadcast.WriteSnapshot(&data)
	if err != nil {
		return err
	}
	out := binary.AppendUvarint(nil, uint64(len(states)))
	for _, m := range states {
		out = appendStrings(out, m.Name, m.Kind, m.Codec, m.Schema, m.KeySchema)
	}
	return list(broadcastList, snapshot.Union, [][]byte{append(out, data.Bytes()...)}, nil, broadcastMaps(states)...)
}

// Release ends the view; exactly once.
func (f *FrozenOperator) Release() {
	if f.broadcast != nil {
		f.broadcast.Release()
	}
}

// Restore ends registration and loads the lists that were stored, by the names
// that Write gave them, but for the broadcast maps that are dropped. What was
// stored and is not registered any more, or with another type, is an error that
// names it.
func (o *Operator) Restore(stored map[string][][]byte, dropped ...string) error {
	o.restored = true
	if err := o.restore(stored, dropped); err != nil {
		return fmt.Errorf("operator %q: restore operator state: %w", o.uid, err)
	}
	return nil
}

func (o *Operator) restore(stored map[string][][]byte, dropped []string) error {
	for _, b := range stored[metaList] {
		m, err := decodeListMeta(b)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(o.lists, func(l operatorList) bool { return l.meta().name == m.name })
		if _, there := stored[m.storedAs()]; i < 0 && !there {
			continue // dropped on the user's word
		}
		if i < 0 {
			return fmt.Errorf("the snapshot has list %q, which the operator did not register when it was opened", m.name)
		}
		if err := o.lists[i].read(m); err != nil {
			return fmt.Errorf("list %q: %w", m.name, err)
		}
	}
	for _, l := range o.lists {
		if err := l.restore(stored[l.meta().storedAs()]); err != nil {
			return fmt.Errorf("list %q: %w: %w", l.meta().name, statebackend.ErrCorrupt, err)
		}
	}
	var parts []statebackend.RestoredPart
	for _, b := range stored[broadcastList] {
		p, err := decodeBroadcast(b)
		if err != nil {
			return err
		}
		for i := range p.States {
			if slices.Contains(dropped, p.States[i].Name) {
				p.States[i].Kind = snapshot.DroppedKind
			}
		}
		parts = append(parts, p)
	}
	if o.broadcast == nil {
		if len(parts) > 0 {
			return fmt.Errorf("the snapshot has broadcast state, of which the operator registered none when it was opened")
		}
		return nil
	}
	if err := o.broadcast.Backend().Restore(parts); err != nil {
		return fmt.Errorf("broadcast state: %w", err)
	}
	return o.broadcast.SetCurrentKey(false)
}

func decodeBroadcast(b []byte) (statebackend.RestoredPart, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)) {
		return statebackend.RestoredPart{}, fmt.Errorf("%w: broadcast state of %d bytes", statebackend.ErrCorrupt, len(b))
	}
	b = b[used:]
	p := statebackend.RestoredPart{Range: keygroup.Range{}}
	for range n {
		var m snapshot.StateMeta
		var err error
		if b, err = cutStrings(b, &m.Name, &m.Kind, &m.Codec, &m.Schema, &m.KeySchema); err != nil {
			return p, err
		}
		p.States = append(p.States, m)
	}
	p.Data, p.Offsets = b, []int64{0, int64(len(b))}
	return p, nil
}

// Close drops the state. Frozen views that are alive stay usable.
func (o *Operator) Close() error {
	if o.broadcast == nil {
		return nil
	}
	return o.broadcast.Backend().Close()
}
