// Package slots is the slot table of a JobManager: which TaskManagers there
// are, which of their slots are free, and which attempt of which job holds the
// others.
//
// It is pure. Each method is one step and returns the notices that jobs must
// now be given, in order; the shell passes them on to the coordinators.
//
//   - A request is granted whole or not at all, so two jobs never wait for
//     each other's half.
//   - Requests are served in the order in which they came, but one that does
//     not fit holds up nobody: streaming jobs stay, so the slots that it lacks
//     may not come for days, and meanwhile a smaller job could run.
//   - A grant takes slots where the fewest are used, so subtasks spread, and where
//     the job would rather not be only if there are no others.
//   - A lease belongs to an attempt. A newer attempt's request ends the leases
//     and requests of older attempts of the same job, and whatever an older
//     attempt still says changes nothing (I8). So a lost reply leaks nothing:
//     the next attempt takes back what nobody knew of.
//   - A slot is never promised twice, and free and leased slots always add up
//     to the total (I7).
//
// A TaskManager is registered under the ID of one life of its process. When
// it is lost its slots leave the table, and the leases on them end; the jobs
// hear of the loss itself from the shell, not from here.
package slots
