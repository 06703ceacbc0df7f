package coordinator

import (
	"slices"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// source is the split list of one source operator.
//
// The list only grows. A split's place is its identity and never changes, on
// restore and rescale neither: subtask i mod parallelism owns it (I7), and its
// position is found by its place. Two splits may have equal content.
//
// A checkpoint carries the list as it is when the checkpoint completes, so it
// has every split that a subtask could have read before its barrier; one too
// many is read from its start after a restore.
type source struct {
	uid         ids.OperatorUID
	vertex      ids.VertexID
	parallelism int
	splits      []snapshot.Split
	complete    bool
}

// resetSources takes the lists of the restore point: what was discovered
// since is discovered again, what was restored is never listed anew.
func (c *Coordinator) resetSources(restored []snapshot.SplitList) {
	c.sources = nil
	for v := range c.graph.Vertices {
		if !c.graph.IsSource(ids.VertexID(v)) {
			continue
		}
		src := &source{
			uid:         c.graph.Vertices[v].Chain[0],
			vertex:      ids.VertexID(v),
			parallelism: c.graph.Vertices[v].Parallelism,
		}
		for _, list := range restored {
			if list.UID == src.uid {
				src.splits = slices.Clone(list.Splits)
				src.complete = list.Complete
			}
		}
		c.sources = append(c.sources, src)
	}
}

// wantsListing reports whether nothing is known yet. A list of which anything
// is known, restored or not, is never made again: the input may have changed,
// and what is read twice or under another place is wrong (I7).
func (s *source) wantsListing() bool { return len(s.splits) == 0 && !s.complete }

// assignment gives subtask index its splits from place `from` on.
func (s *source) assignment(index int32, from int) SplitAssignment {
	a := SplitAssignment{
		Subtask:  ids.SubtaskID{Vertex: s.vertex, Index: index},
		Operator: s.uid,
		Complete: s.complete,
	}
	p := s.parallelism
	first := from + ((int(index)-from)%p+p)%p
	for i := first; i < len(s.splits); i += p {
		invariant.Check(i%p == int(index), "I7", "split %d of %q is given to subtask %d of %d", i, s.uid, index, p)
		a.Indexes = append(a.Indexes, int64(i))
		a.Splits = append(a.Splits, s.splits[i])
	}
	return a
}

// onSplitsDiscovered appends what is new and gives it to its owners.
func (c *Coordinator) onSplitsDiscovered(e SplitsDiscovered) {
	var src *source
	for _, s := range c.sources {
		if s.uid == e.Operator {
			src = s
		}
	}
	if src == nil || !c.attempt.deployed || c.phase != phaseDeploy && c.phase != phaseRun {
		c.dropped.OutOfPlace++
		return
	}
	if src.complete {
		// Nothing may follow a complete list: tasks have been told.
		c.dropped.OutOfPlace++
		return
	}
	from := len(src.splits)
	src.splits = append(src.splits, e.Splits...)
	src.complete = e.Complete
	for i := range src.parallelism {
		a := src.assignment(int32(i), from)
		if len(a.Splits) == 0 && !src.complete {
			continue
		}
		at, _ := c.layout.index(a.Subtask)
		c.emit(AssignSplits{Executor: c.attempt.executorOf(at).id, Assignment: a})
	}
}

// splitLists is the lists as a checkpoint stores them. Appending to ours
// later does not change what the copy sees.
func (c *Coordinator) splitLists() []snapshot.SplitList {
	lists := make([]snapshot.SplitList, len(c.sources))
	for i, s := range c.sources {
		lists[i] = snapshot.SplitList{UID: s.uid, Splits: s.splits[:len(s.splits):len(s.splits)], Complete: s.complete}
	}
	return lists
}
