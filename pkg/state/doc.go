// Package state is what a keyed operator keeps between records: typed handles
// on the state of the current key.
//
// An operator registers its states once, when it is opened:
//
//	agg, err := state.NewValue[Agg](ctx, "agg")
//
// and uses the handle for every record; the runtime has set the current key
// before. State is matched by operator UID and state name on restore.
package state
