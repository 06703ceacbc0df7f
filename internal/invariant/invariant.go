package invariant

import "fmt"

// Violation is what a failed Check panics with.
type Violation struct {
	// Invariant is the number in docs/ARCHITECTURE.md, as in "I3", or a short name.
	Invariant string
	Message   string
}

// Error makes a Violation an error, so that a recover can wrap it.
func (v Violation) Error() string { return "invariant " + v.Invariant + " violated: " + v.Message }

// Check panics with a Violation unless ok holds. name is the invariant's number.
func Check(ok bool, name, format string, args ...any) {
	if !ok {
		panic(Violation{Invariant: name, Message: fmt.Sprintf(format, args...)})
	}
}
