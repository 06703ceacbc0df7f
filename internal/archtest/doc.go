// Package archtest holds the tests that keep Weir's structure: which package
// may import which, what a pure package may not do, where goroutines may
// start, and that every invariant is checked and tested.
//
// The rules are data in rules_test.go, each with its reason, so that changing
// the architecture is a change of that table. The checks only parse the source,
// which takes well under a second. They are tried on planted violations first:
// a check that notices nothing would pass for ever.
//
// The package has no code of its own.
package archtest
