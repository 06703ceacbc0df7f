package keygroup

import "fmt"

// Group is the number of a key group, 0 to max parallelism-1.
type Group uint16

// DefaultMaxParallelism is the number of key groups of a job that does not set it.
const DefaultMaxParallelism = 128

// MaxParallelismLimit bounds max parallelism: products of it and a
// parallelism stay far inside an int32, and tables by group stay small.
const MaxParallelismLimit = 32768

// Range is a run of contiguous groups, inclusive at both ends.
type Range struct{ First, Last Group }

// Len is the number of groups in the range.
func (r Range) Len() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether g is in the range.
func (r Range) Contains(g Group) bool { return g >= r.First && g <= r.Last }

// Intersect returns the common part of two ranges, and whether there is one.
func (r Range) Intersect(o Range) (Range, bool) {
	out := Range{First: max(r.First, o.First), Last: min(r.Last, o.Last)}
	return out, out.First <= out.Last
}

// String prints first-last.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// OfHash is the group of a key with the given hash (see Hash).
func OfHash(hash uint32, maxParallelism int) Group {
	return Group(hash % uint32(maxParallelism))
}

// RangeOf is the range that subtask index of parallelism owns. The ranges of
// all subtasks partition the groups (I7).
func RangeOf(index, parallelism, maxParallelism int) Range {
	first := (index*maxParallelism + parallelism - 1) / parallelism
	last := ((index+1)*maxParallelism - 1) / parallelism
	return Range{First: Group(first), Last: Group(last)}
}

// OwnerOf is the subtask of parallelism that owns group g: the inverse of RangeOf.
func OwnerOf(g Group, parallelism, maxParallelism int) int {
	return int(g) * parallelism / maxParallelism
}
