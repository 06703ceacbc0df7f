package operator

import (
	"context"

	"github.com/weirstream/weir/pkg/state"
)

// OperatorState makes a Context what operator state is registered with: by a
// sink in OpenWriter, where every call of the writer may use it. Sources have
// none: their splits and positions are their state.
func (c *Context) OperatorState() *state.Operator { return c.lists }

// openLists gives the operator its empty operator state.
func (c *Context) openLists() { c.lists = state.NewOperator(c.Operator, c.Index) }

// RestoreLists gives operator state what was stored of it.
func RestoreLists(o *state.Operator, r *Restored) error {
	stored := make(map[string][][]byte, len(r.Lists))
	for name, elements := range r.Lists {
		stored[name] = nil // a list that is empty is there all the same
		for _, e := range elements {
			stored[name] = append(stored[name], e.Bytes)
		}
	}
	return o.Restore(stored, r.Dropped...)
}

// FreezeLists freezes operator state; nil if there is none.
func FreezeLists(o *state.Operator) (Frozen, error) {
	f, err := o.Freeze()
	if f == nil || err != nil {
		return nil, err
	}
	return frozenLists{f}, nil
}

type frozenLists struct{ state *state.FrozenOperator }

// Write implements Frozen.
func (f frozenLists) Write(_ context.Context, w SnapshotWriter) error { return f.state.Write(w.List) }

// Release implements Frozen.
func (f frozenLists) Release() { f.state.Release() }
