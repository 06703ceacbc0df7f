// Package state is what a keyed operator keeps between records: typed handles
// on the state of the current key.
//
// An operator registers its states once, when it is opened:
//
//	agg, err := state.NewValue[Agg](ctx, "agg")
//
// and uses the handle for every record; the runtime has set the current key
// before. State is matched by operator UID, state name and kind on restore.
//
// There are Value, List, Map, Reducing and Aggregating. A Map is more than a
// Value of a Go map: only what is touched of it is read, written or copied.
package state
