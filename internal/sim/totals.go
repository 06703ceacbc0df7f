package sim

import (
	"fmt"
	"strings"
)

// add sums the counters of another run up.
func (r *Result) add(o Result) {
	r.Events += o.Events
	r.Elapsed += o.Elapsed
	r.Attempts += o.Attempts
	r.Restores += o.Restores
	r.Completed += o.Completed
	r.Savepoints += o.Savepoints
	r.Stops += o.Stops
	r.Cancels += o.Cancels
	r.Fenced += o.Fenced
	r.Leftovers += o.Leftovers
	r.Transactions += o.Transactions
	r.TransactionsAborted += o.TransactionsAborted
	for kind := range faultKinds {
		r.Faults[kind] += o.Faults[kind]
	}
}

// totals prints what happened.
func (r Result) totals() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events in %s of virtual time, %d attempts, %d restores, %d completed checkpoints, %d transactions committed, "+
		"%d aborted, %d savepoints, %d stops, %d cancels, %d leaders fenced, %d files left by processes that had been replaced; faults:",
		r.Events, r.Elapsed.Round(1e9), r.Attempts, r.Restores, r.Completed, r.Transactions, r.TransactionsAborted, r.Savepoints, r.Stops, r.Cancels, r.Fenced, r.Leftovers)
	for kind := range faultKinds {
		fmt.Fprintf(&b, " %s=%d", kind, r.Faults[kind])
	}
	return b.String()
}
