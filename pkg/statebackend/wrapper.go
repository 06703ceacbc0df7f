package statebackend

// Wrapper is a KeyedState that stores another one's content in its own way and
// leaves the states to it: package state registers them with what Unwrap returns.
type Wrapper interface {
	KeyedState
	Unwrap() KeyedState
}

// Origins is what a FileFrozen may be too, if its KeyedState was restored from
// files and goes on using some of them under other names, as it must when
// files of several parts have the same name. Without it, a file of a restored
// part is known again only if the state was restored from that part alone, and
// owns just its key groups.
type Origins interface {
	// OriginOf tells which file of which restored part, by RestoredPart.Number,
	// a shared file of the view is, with not a byte changed. It is called after
	// Files, by the same goroutine.
	OriginOf(local string) (part int, restored string, ok bool)
}
