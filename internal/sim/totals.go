package sim

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/internal/sim/simjob"
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
	r.Stops += o.Stops
	r.Beside += o.Beside
	r.Duplicates += o.Duplicates
	r.TimedOut += o.TimedOut
	r.InFlight += o.InFlight
	r.RestoredInFlight += o.RestoredInFlight
	r.Rekeyed += o.Rekeyed
	r.Drains += o.Drains
	r.LoopLogged += o.LoopLogged
	r.LoopsEnded += o.LoopsEnded
	r.LoopSpilled += o.LoopSpilled
	for mode := range r.Modes {
		r.Modes[mode] += o.Modes[mode]
	}
	r.Fenced += o.Fenced
	r.Leftovers += o.Leftovers
	r.SharedUploaded += o.SharedUploaded
	r.SharedReused += o.SharedReused
	r.SharedDeleted += o.SharedDeleted
	r.FromFiles += o.FromFiles
	r.LocalFiles += o.LocalFiles
	r.OtherBackend += o.OtherBackend
	r.Fallbacks += o.Fallbacks
	r.Revoked += o.Revoked
	r.FailedCorrupt += o.FailedCorrupt
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
		"%d aborted, %d savepoints, %d cancels, %d jobs without end stopped, %d runs of two jobs, %d leaders fenced, %d files left by processes that had been replaced",
		r.Events, r.Elapsed.Round(1e9), r.Attempts, r.Restores, r.Completed, r.Transactions, r.TransactionsAborted, r.Savepoints, r.Cancels, r.Stops, r.Beside, r.Fenced, r.Leftovers)
	fmt.Fprintf(&b, "\nshared files: %d uploaded, %d reused, %d deleted; %d restores from files, %d files read locally, %d jobs went on with another backend; "+
		"%d fallbacks, %d transactions taken back, %d jobs failed for a corrupt checkpoint",
		r.SharedUploaded, r.SharedReused, r.SharedDeleted, r.FromFiles, r.LocalFiles, r.OtherBackend, r.Fallbacks, r.Revoked, r.FailedCorrupt)
	b.WriteString("\nmodes:")
	for mode := range r.Modes {
		fmt.Fprintf(&b, " %s=%d", simjob.Mode(mode), r.Modes[mode])
	}
	fmt.Fprintf(&b, "; %d alignments timed out, %d records in flight stored, %d restored, %d parts given away by key; %d records came out again, %d stops drained; %d records logged by loops, %d bytes put on disk by them, %d heads of loops ended",
		r.TimedOut, r.InFlight, r.RestoredInFlight, r.Rekeyed, r.Duplicates, r.Drains, r.LoopLogged, r.LoopSpilled, r.LoopsEnded)
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
