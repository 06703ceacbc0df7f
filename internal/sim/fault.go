package sim

import "fmt"

// FaultKind is a kind of fault, or something that users do in the middle.
type FaultKind int

// The kinds of fault.
const (
	// TaskManagerCrash ends a TaskManager with its executors; a new life comes later.
	TaskManagerCrash FaultKind = iota
	// HostPause stops a TaskManager with its executors, often for so long that
	// the job goes on elsewhere; then they wake and go on with what they had.
	HostPause
	// ExecutorCrash ends one executor.
	ExecutorCrash
	// CrashInWrite ends a process in the middle of its writes to the store.
	CrashInWrite
	// JobManagerCrash ends the leading JobManager; a new one comes later.
	JobManagerCrash
	// JobManagerPause stops the leader long enough for another to take over;
	// later it wakes and goes on with what it had queued.
	JobManagerPause
	// JobManagerStall stops the leader shortly: nobody notices.
	JobManagerStall
	// Takeover starts a second JobManager while the leader is well.
	Takeover
	// SessionBreak breaks the session of a TaskManager.
	SessionBreak
	// ExecutorSessionBreak breaks that of an executor.
	ExecutorSessionBreak
	// LinkBreak breaks a data channel.
	LinkBreak
	// LinkStall delivers nothing on a data channel for a while.
	LinkStall
	// CorruptFile damages or removes files of retained checkpoints while no
	// JobManager leads.
	CorruptFile
	// StoreOutage fails every call of the store for a while.
	StoreOutage
	// StoreBefore fails a call that never reaches the store.
	StoreBefore
	// StoreAfter fails a call that was carried out: its outcome is unknown.
	StoreAfter
	// StoreLate fails a conditional write that takes effect later.
	StoreLate
	// StoreSlow makes a call take long.
	StoreSlow
	// DoubledReport brings an acknowledgement, a decline or a commit report to the
	// JobManager a second time, later.
	DoubledReport
	// DoubledNotice brings a notice to an executor a second time, later. (A
	// trigger comes once: sessions are reliable streams, and nobody repeats it.)
	DoubledNotice
	// LateNotice brings a notice to an executor behind what was sent after it.
	LateNotice
	// SourceError fails a fetch of a source.
	SourceError
	// PersistError fails a sink that makes a transaction durable, before or after it did.
	PersistError
	// CommitError fails a sink that commits, before or after it did.
	CommitError
	// StuckTask lets an executor ignore a cancel: it has to be killed.
	StuckTask
	// ClockJump sets the clock of a host back or forth.
	ClockJump

	faultKinds
)

// String names the kind.
func (k FaultKind) String() string {
	switch k {
	case TaskManagerCrash:
		return "taskmanager-crash"
	case HostPause:
		return "host-pause"
	case ExecutorCrash:
		return "executor-crash"
	case CrashInWrite:
		return "crash-in-write"
	case JobManagerCrash:
		return "jobmanager-crash"
	case JobManagerPause:
		return "jobmanager-pause"
	case JobManagerStall:
		return "jobmanager-stall"
	case Takeover:
		return "takeover"
	case SessionBreak:
		return "session-break"
	case ExecutorSessionBreak:
		return "executor-session-break"
	case LinkBreak:
		return "link-break"
	case LinkStall:
		return "link-stall"
	case CorruptFile:
		return "corrupt-file"
	case StoreOutage:
		return "store-outage"
	case StoreBefore:
		return "store-before"
	case StoreAfter:
		return "store-after"
	case StoreLate:
		return "store-late"
	case StoreSlow:
		return "store-slow"
	case DoubledReport:
		return "doubled-report"
	case DoubledNotice:
		return "doubled-notice"
	case LateNotice:
		return "late-notice"
	case SourceError:
		return "source-error"
	case PersistError:
		return "persist-error"
	case CommitError:
		return "commit-error"
	case StuckTask:
		return "stuck-task"
	case ClockJump:
		return "clock-jump"
	case faultKinds:
	}
	return fmt.Sprintf("FaultKind(%d)", int(k))
}

// isInjected are the kinds that the injector makes; the others happen to calls
// of the store, of sources and of sinks.
var isInjected = [faultKinds]bool{
	TaskManagerCrash: true, HostPause: true, ExecutorCrash: true, JobManagerCrash: true, JobManagerPause: true, JobManagerStall: true,
	Takeover: true, SessionBreak: true, ExecutorSessionBreak: true, LinkBreak: true, LinkStall: true, StoreOutage: true, ClockJump: true, CorruptFile: true,
}

// oddsMax are the largest odds per call. A checkpoint makes some twenty calls,
// so that even the largest let most checkpoints complete.
var oddsMax = [faultKinds]float64{
	CrashInWrite: 0.004, StoreBefore: 0.02, StoreAfter: 0.02, StoreLate: 0.03, StoreSlow: 0.02,
	DoubledReport: 0.05, DoubledNotice: 0.05, LateNotice: 0.1,
	SourceError: 0.008, PersistError: 0.01, CommitError: 0.01, StuckTask: 0.9,
}
