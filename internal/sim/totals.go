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
	r.Cancels += o.Cancels
	r.Fenced += o.Fenced
	r.Leftovers += o.Leftovers
	r.Transactions += o.Transactions
	r.TransactionsAborted += o.TransactionsAborted
	for kind := range rescaleKinds {
		r.Rescales[kind] += o.Rescales[kind]
	}
	r.Claims += o.Claims
	r.Refused += o.Refused
	r.EventTimers += o.EventTimers
	r.ProcessingTimers += o.ProcessingTimers
	r.Expired += o.Expired
	r.Alive += o.Alive
	r.Idle += o.Idle
	for kind := range faultKinds {
		r.Faults[kind] += o.Faults[kind]
	}
}

// totals prints what happened.
func (r Result) totals() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events in %s of virtual time, %d attempts, %d restores, %d completed checkpoints, %d transactions committed, "+
		"%d aborted, %d savepoints, %d cancels, %d leaders fenced, %d files left by processes that had been replaced",
		r.Events, r.Elapsed.Round(1e9), r.Attempts, r.Restores, r.Completed, r.Transactions, r.TransactionsAborted, r.Savepoints, r.Cancels, r.Fenced, r.Leftovers)
	b.WriteString("\nrescales:")
	for kind := range rescaleKinds {
		fmt.Fprintf(&b, " %s=%d", kind, r.Rescales[kind])
	}
	fmt.Fprintf(&b, ", %d claimed, %d refused for their max parallelism; timers: %d of event time, %d of processing time; time-to-live: "+
		"%d values had expired, %d had not; sources were idle %d times\nfaults:",
		r.Claims, r.Refused, r.EventTimers, r.ProcessingTimers, r.Expired, r.Alive, r.Idle)
	for kind := range faultKinds {
		fmt.Fprintf(&b, " %s=%d", kind, r.Faults[kind])
	}
	return b.String()
}
