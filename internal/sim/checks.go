package sim

import (
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// checks is what the checkers remember. Each checker has a file of its own.
type checks struct {
	// records is what the store last held, by job.
	records map[ids.JobID]checkpointstore.JobRecord
	// published are the checkpoints and savepoints that a record has named.
	published map[checkpointName]*published
	byURI     map[string]*published
	// frozen are the clocks of snapshots.
	frozen map[checkpointName]*frozenClocks
	// allowed are the transactions that a published checkpoint has; only they
	// may become visible.
	allowed map[string]bool
	// needed are the transactions that a published checkpoint or savepoint has.
	needed map[string]ids.CheckpointID
	// aborted are the transactions that a cancelled subtask has given up.
	aborted map[string]bool
	// attempts is what is known of each attempt.
	attempts map[attemptName]*attemptCheck
	// triggered has the barrier and the token of every checkpoint.
	triggered map[checkpointName]triggered
	// unpublished are the checkpoints of which a coordinator was told that they
	// are not published, with its token.
	unpublished map[checkpointName]ids.FencingToken
	// referenced are the objects that must not be deleted.
	referenced map[string]bool
	// deleted are the objects that were deleted, written when the others were.
	deleted map[string]bool
	written map[string]time.Duration
	// revenant are objects that came again, see returns; held are shared files
	// that metadata of nobody holds, see holds.
	revenant, held map[string]bool
	// damaged has what was in the objects that a fault has damaged.
	damaged map[string][]byte
	// abandoned are transactions of checkpoints that a job has fallen back
	// from, with the token under which it did.
	abandoned map[string]ids.FencingToken
	// swept is when leftovers below a URI were last looked for; for a savepoint,
	// since the attempt that wrote there had ended.
	swept map[string]time.Duration
	// unswept are the URIs below which a driver gave up to look for them, the
	// store having failed it too often.
	unswept map[string]bool
}

func newChecks() checks {
	return checks{
		records: map[ids.JobID]checkpointstore.JobRecord{}, published: map[checkpointName]*published{}, byURI: map[string]*published{},
		frozen:  map[checkpointName]*frozenClocks{},
		allowed: map[string]bool{}, needed: map[string]ids.CheckpointID{}, aborted: map[string]bool{},
		attempts:    map[attemptName]*attemptCheck{},
		unpublished: map[checkpointName]ids.FencingToken{},
		triggered:   map[checkpointName]triggered{}, referenced: map[string]bool{}, deleted: map[string]bool{},
		revenant: map[string]bool{}, held: map[string]bool{},
		written: map[string]time.Duration{}, swept: map[string]time.Duration{}, unswept: map[string]bool{}, damaged: map[string][]byte{}, abandoned: map[string]ids.FencingToken{},
	}
}

// checkpointName names a checkpoint of any job.
type checkpointName struct {
	job ids.JobID
	id  ids.CheckpointID
}

// attemptName names an attempt of any job.
type attemptName struct {
	job     ids.JobID
	attempt ids.AttemptID
}

// published is a checkpoint as it was read back from the store.
type published struct {
	uri        string
	base       string
	checkpoint *snapshot.CompletedCheckpoint
	stored     *simjob.Stored
	// output is all output in front of it.
	output map[simjob.Count]bool
}

type triggered struct {
	barrier element.Barrier
	token   ids.FencingToken
	attempt ids.AttemptID
}

// attemptCheck is what is known of one attempt.
type attemptCheck struct {
	job *job
	// restored is what it was restored from; nil for nothing.
	restored *published
	// live is what operators have restored, by UID.
	live      map[ids.OperatorUID]*liveCheck
	ready     map[ids.SubtaskID]bool
	opened    map[int]bool
	committed map[ids.SubtaskID]ids.CheckpointID
	deployed  map[ids.SubtaskID]*host
}

// attempt finds or makes the entry of an attempt.
func (c *cluster) attempt(j *job, id ids.AttemptID) *attemptCheck {
	name := attemptName{j.id, id}
	a := c.checks.attempts[name]
	if a == nil {
		a = &attemptCheck{
			job: j, live: map[ids.OperatorUID]*liveCheck{}, ready: map[ids.SubtaskID]bool{}, opened: map[int]bool{},
			committed: map[ids.SubtaskID]ids.CheckpointID{}, deployed: map[ids.SubtaskID]*host{},
		}
		c.checks.attempts[name] = a
	}
	return a
}

// liveCheck is what the subtasks of an operator have restored, together.
type liveCheck struct {
	lines simjob.Lines
	parts []uint64
	ready int
}

// latest is the newest checkpoint that commits: what the job's record, or its
// submission, restores from.
func (c *cluster) latest(j *job) *published {
	if id := c.checks.records[j.id].Latest.ID; id != 0 {
		return c.checks.published[checkpointName{j.id, id}]
	}
	return j.from
}
