package main

import (
	"fmt"

	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// settingsCount is the number of records that are broadcast.
const settingsCount = 5

// OldMark is what the first version keeps in operator state.
type OldMark struct {
	N    uint32
	Name string
	Gone string
}

// NewMark has a field more, one less, one renamed and one of more bits.
type NewMark struct {
	Extra int64
	Title string `weir:"Title,alias=Name"`
	N     int64
}

// WrongMark has a field that cannot take what the first version stored.
type WrongMark struct{ N string }

func makeOld(n uint64) OldMark {
	return OldMark{N: uint32(n), Name: fmt.Sprint("mark-", n), Gone: "gone"}
}
func makeNew(n uint64) NewMark     { return NewMark{N: int64(n), Title: fmt.Sprint("mark-", n)} }
func makeWrong(n uint64) WrongMark { return WrongMark{N: fmt.Sprint(n)} }

// marks has operator state of a version's types: L those of a list, M those of
// a broadcast map. It passes its lines on.
type marks[L, M comparable] struct {
	makeL  func(n uint64) L
	makeM  func(n uint64) M
	keys   *state.OperatorList[L]
	limits *state.Broadcast[uint64, M]
	// flags is nil in the version that has dropped it.
	flags *state.Broadcast[string, bool]
	// seen has the keys of keys.
	seen map[L]bool
}

func newMarks[L, M comparable](makeL func(n uint64) L, makeM func(n uint64) M) func() *marks[L, M] {
	return func() *marks[L, M] { return &marks[L, M]{makeL: makeL, makeM: makeM, seen: map[L]bool{}} }
}

// Open registers the states.
func (f *marks[L, M]) Open(ctx *stream.Context[uint64]) (err error) {
	if f.keys, err = state.NewUnionList[L](ctx, "keys"); err != nil {
		return err
	}
	if f.limits, err = state.NewBroadcast[uint64, M](ctx, "limits"); err != nil || *version == "dropped" {
		return err
	}
	f.flags, err = state.NewBroadcast[string, bool](ctx, "flags")
	return err
}

// Start checks what was restored: all versions but the first start from what
// that one stored.
func (f *marks[L, M]) Start(*stream.Context[uint64]) error {
	wanted := map[L]bool{}
	for n := range *keys {
		wanted[f.makeL(n)] = true
	}
	for _, m := range f.keys.Get() {
		if f.seen[m] = true; !wanted[m] {
			return operator.Permanentf("the list has %+v", m)
		}
	}
	if *version == "first" {
		return nil
	}
	if len(f.seen) == 0 {
		return operator.Permanentf("the list is empty")
	}
	for n := range uint64(settingsCount) {
		if m, found, err := f.limits.Get(n); err != nil || !found || m != f.makeM(n) {
			return operator.Permanentf("limit %d is %+v, %v, %v", n, m, found, err)
		}
		if f.flags == nil {
			continue
		}
		if on, found, err := f.flags.Get(fmt.Sprint(n)); err != nil || !found || !on {
			return operator.Permanentf("flag %d is %v, %v, %v", n, on, found, err)
		}
	}
	return nil
}

// Process adds the key of a line to the list if it is the first that the subtask sees.
func (f *marks[L, M]) Process(_ *stream.Context[uint64], l Line, out stream.Collector[Line]) error {
	if m := f.makeL(l.Key); !f.seen[m] {
		f.seen[m] = true
		f.keys.Add(m)
	}
	return out.Collect(l)
}

// ProcessBroadcast sets both maps.
func (f *marks[L, M]) ProcessBroadcast(side *state.BroadcastSide, n uint64, _ stream.Collector[Line]) error {
	if err := f.limits.Set(side, n, f.makeM(n)); err != nil || f.flags == nil {
		return err
	}
	return f.flags.Set(side, fmt.Sprint(n), true)
}
