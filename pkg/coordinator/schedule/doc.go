// Package schedule decides which slot holds which subtasks. It is pure and
// deterministic: equal slots give equal placements, in whatever order they come.
package schedule
