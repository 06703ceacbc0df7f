package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/timer"
)

// Plant is a bug made on purpose, in what the simulator puts around
// production's code: the checkers must find it.
type Plant int

// The plants.
const (
	// NoPlant is production as it is. The others are explained in plantTexts.
	NoPlant Plant = iota
	ForgetsToBlock
	NotifiesBeforePublication
	AcknowledgesBeforePersisted
	ReusesIDs
	OldTokenPublishes
	LosesFrames
	ReordersBarriers
	ForgetsToDiscard
	DiscardsLatest
	ForgetsCommits
	ErrorIsAbsence
	UnknownIsFailure
	AbortsTooMuch
	DropsTimers
	WatermarkGoesBack
	BlockedIsIdle
	TTLGoesBack
	DealsTwice
	LeavesTimers
	DeletesShared
	ReusesUnpublished
	SweepsBlindly
	FallsBackOnFailedRead
	OvertakesInOrder
	ForgetsInFlight
	RestoresInFlightTwice
	ForgetsUnreadRest
	AcknowledgesBeforeInFlight
	RestoresLaterPositions
	SubsumesSavepoints
	DropsFeedbackLog
	PassesEarlyReturns

	plants
)

// plantTexts name each plant as flags do, and say what is wrong with it.
var plantTexts = [plants]struct{ name, text string }{
	NoPlant:                     {"none", "production as it is"},
	ForgetsToBlock:              {"forgets-to-block", "aligners do not hold channels back"},
	NotifiesBeforePublication:   {"notifies-before-publication", "the driver tells executors to commit when it is told to publish"},
	AcknowledgesBeforePersisted: {"acknowledges-before-persisted", "files of snapshots are acknowledged though the store has not taken them"},
	ReusesIDs:                   {"reuses-ids", "a JobManager that takes over forgets which IDs were reserved"},
	OldTokenPublishes:           {"old-token-publishes", "record writes go through whatever the record holds"},
	LosesFrames:                 {"loses-frames", "channels drop a frame now and then and do not break"},
	ReordersBarriers:            {"reorders-barriers", "channels let a barrier overtake the frame before it"},
	ForgetsToDiscard:            {"forgets-to-discard", "what is to be discarded stays"},
	DiscardsLatest:              {"discards-latest", "the newest checkpoint is discarded in place of the oldest"},
	ForgetsCommits:              {"forgets-commits", "sinks are told that a commit worked that did not happen"},
	ErrorIsAbsence:              {"error-is-absence", "metadata that cannot be read counts as broken"},
	UnknownIsFailure:            {"unknown-is-failure", "a publication of unknown outcome counts as failed"},
	AbortsTooMuch:               {"aborts-too-much", "cancelled sinks abort what published checkpoints need, too"},
	DropsTimers:                 {"drops-timers", "a snapshot is written without its timers"},
	WatermarkGoesBack:           {"watermark-goes-back", "operators begin at no watermark after a restore"},
	BlockedIsIdle:               {"blocked-is-idle", "sources that wait for credit count as idle"},
	TTLGoesBack:                 {"ttl-goes-back", "a time-to-live goes by a clock that may go back"},
	DealsTwice:                  {"deals-twice", "an element of a list is dealt out to two subtasks"},
	LeavesTimers:                {"leaves-timers", "the timers of some key groups are left behind on a rescale"},
	DeletesShared:               {"deletes-shared", "shared files go with the first checkpoint that has them"},
	ReusesUnpublished:           {"reuses-unpublished", "subtasks take what they acknowledged last for the base of what comes next, published or not"},
	SweepsBlindly:               {"sweeps-blindly", "shared files of fenced attempts go, whoever refers to them"},
	FallsBackOnFailedRead:       {"falls-back-on-failed-read", "state that a task cannot read counts as broken, and is not read again"},
	OvertakesInOrder:            {"overtakes-in-order", "a barrier overtakes records on broadcast and forward edges, too"},
	ForgetsInFlight:             {"forgets-in-flight", "records in flight are not restored"},
	RestoresInFlightTwice:       {"restores-in-flight-twice", "records in flight are restored twice"},
	ForgetsUnreadRest:           {"forgets-unread-rest", "of a file of records in flight the last part is left out"},
	AcknowledgesBeforeInFlight:  {"acknowledges-before-in-flight", "a snapshot is acknowledged without what it has in flight"},
	RestoresLaterPositions:      {"restores-later-positions", "a source goes on a record behind where its checkpoint stood"},
	DropsFeedbackLog:            {"drops-feedback-log", "a loop's head acknowledges without what came round"},
	PassesEarlyReturns:          {"passes-early-returns", "a barrier that comes round a loop before the head's snapshot does not hold its channel back"},
	SubsumesSavepoints:          {"subsumes-savepoints", "a checkpoint that completes gives up an older savepoint"},
}

// String names the plant as flags do.
func (p Plant) String() string { return plantTexts[p].name }

// Text says what the plant does, in one line.
func (p Plant) Text() string { return plantTexts[p].text }

// Plants lists all plants.
func Plants() []Plant {
	var all []Plant
	for p := NoPlant + 1; p < plants; p++ {
		all = append(all, p)
	}
	return all
}

// mayStrike reports whether a run with the options comes where the plant is:
// seeds that do not are no use to look for it.
func (p Plant) mayStrike(o Options) bool {
	switch p {
	case DropsTimers, WatermarkGoesBack:
		return o.Job.Stateful
	case BlockedIsIdle:
		return o.Job.Idleness > 0
	case TTLGoesBack:
		return o.Job.Stateful && o.Weights[ClockJump] > 0
	case DealsTwice, LeavesTimers:
		return o.Job.Stateful && len(o.Rescales) > 0
	case DeletesShared, ReusesUnpublished, SweepsBlindly:
		return o.InFiles && o.Incremental
	case FallsBackOnFailedRead:
		return o.Odds[StoreBefore] > 0 && o.Retained > 1
	case UnknownIsFailure:
		return o.Odds[StoreAfter] > 0
	case OvertakesInOrder, ForgetsInFlight, RestoresInFlightTwice, ForgetsUnreadRest, AcknowledgesBeforeInFlight:
		return o.Job.Mode == simjob.Unaligned || o.Job.Mode == simjob.AlignedTimeout
	case DropsFeedbackLog:
		return o.Job.HasLoop()
	case PassesEarlyReturns:
		return o.Job.HasRing() && o.Job.Mode == simjob.Aligned
	case RestoresLaterPositions:
		return o.Job.Mode == simjob.AtLeastOnce
	case SubsumesSavepoints:
		return o.Savepoints > 0 && o.MaxConcurrent > 1
	case NoPlant, ForgetsToBlock, NotifiesBeforePublication, AcknowledgesBeforePersisted, ReusesIDs, OldTokenPublishes, LosesFrames,
		ReordersBarriers, ForgetsToDiscard, DiscardsLatest, ForgetsCommits, ErrorIsAbsence, AbortsTooMuch, plants:
	}
	return true
}

// plantOdds is how often the plants strike that would otherwise leave nothing
// to run.
const plantOdds = 0.02

// plantInWorld plants the bugs that are in a job's own code.
func (c *cluster) plantInWorld(w *simjob.World) {
	if c.plant == DropsTimers {
		w.DropsTimers = func() bool { return c.chance(10 * plantOdds) }
	}
	if c.plant == TTLGoesBack {
		w.BadTTL = func() int64 { return c.stepped.hostNow().UnixMilli() }
	}
	if c.plant == RestoresLaterPositions {
		w.SkipsRecords = func() bool { return true }
	}
	if c.plant == ForgetsCommits {
		w.Forgets = func() bool { return c.chance(plantOdds) }
	}
}

// strikes reports whether the plant is in and its turn has come.
func (c *cluster) strikes(p Plant) bool { return c.plant == p && c.chance(plantOdds) }

// forgetfulAligner is an aligner that does not block channels of some kinds.
type forgetfulAligner struct {
	subtask.Aligner
	forgets func(align.ChannelKind) bool
	kinds   []align.ChannelKind
}

// forgetsToBlock says which kinds of channel are not held back; nil for none.
func (c *cluster) forgetsToBlock() func(align.ChannelKind) bool {
	if c.plant == ForgetsToBlock {
		return func(align.ChannelKind) bool { return true }
	}
	if c.plant == PassesEarlyReturns {
		return func(kind align.ChannelKind) bool { return kind == align.Feedback }
	}
	return nil
}

// Barrier implements subtask.Aligner.
func (f *forgetfulAligner) Barrier(ch int, b element.Barrier) []align.Action {
	var kept []align.Action
	for _, a := range f.Aligner.Barrier(ch, b) {
		if a.Kind != align.Block || !f.forgets(f.kinds[a.Channel]) {
			kept = append(kept, a)
		}
	}
	return kept
}

// plantedKinds makes an aligner take channels for what they are not.
func (c *cluster) plantedKinds(kinds []align.ChannelKind) []align.ChannelKind {
	if c.plant != OvertakesInOrder {
		return kinds
	}
	kinds = slices.Clone(kinds)
	for i, kind := range kinds {
		if kind == align.InOrder {
			kinds[i] = align.Overtakable
		}
	}
	return kinds
}

// plantedState makes a subtask's mistakes in what it acknowledges.
func (c *cluster) plantedState(j *job, st snapshot.SubtaskState) snapshot.SubtaskState {
	var left func(i, n int, p snapshot.ChannelPart) bool
	if c.plant == AcknowledgesBeforeInFlight {
		left = func(int, int, snapshot.ChannelPart) bool { return true }
	}
	if c.plant == ForgetsUnreadRest {
		left = func(i, n int, _ snapshot.ChannelPart) bool { return i == n-1 }
	}
	if c.plant == DropsFeedbackLog {
		left = func(_, _ int, p snapshot.ChannelPart) bool { return j.graph.Edges[p.Edge].Edge.Feedback }
	}
	if left == nil {
		return st
	}
	st.InFlight = slices.Clone(st.InFlight)
	for i := range st.InFlight {
		var kept []snapshot.ChannelPart
		for n, p := range st.InFlight[i].Parts {
			if !left(n, len(st.InFlight[i].Parts), p) {
				kept = append(kept, p)
			}
		}
		st.InFlight[i].Parts = kept
	}
	return st
}

// subsumeSavepoints gives up the savepoints that are under way.
func (c *cluster) subsumeSavepoints(d *jobDriver) {
	for _, v := range d.machine.Status().Checkpoints {
		t := c.checks.triggered[checkpointName{d.job.id, v.ID}]
		if v.Status != coordinator.CheckpointInProgress || !t.barrier.Savepoint {
			continue
		}
		for _, tm := range c.taskManagers {
			for _, x := range tm.executors {
				d.jm.send(x.id, coordinator.NotifyAborted{Executor: x.id, Checkpoint: v.ID})
			}
		}
	}
}

// planted makes a driver's mistakes: it gives what is carried out in place of
// an effect, nil for nothing.
func (c *cluster) planted(d *jobDriver, effect coordinator.Effect) coordinator.Effect {
	switch e := effect.(type) {
	case coordinator.PublishCheckpoint:
		if c.plant == NotifiesBeforePublication {
			for _, tm := range c.taskManagers {
				for _, x := range tm.executors {
					d.jm.send(x.id, coordinator.NotifyComplete{Executor: x.id, Checkpoint: e.Checkpoint})
				}
			}
		}
		if c.plant == SubsumesSavepoints {
			c.subsumeSavepoints(d)
		}
	case coordinator.CancelTasks:
		if c.plant == AbortsTooMuch {
			e.KeepUpTo = 0
			return e
		}
	case coordinator.DiscardHandles:
		if c.plant == ForgetsToDiscard {
			return nil
		}
	case coordinator.TriggerCheckpoint:
		if c.plant == ReusesUnpublished && e.Barrier.Base != 0 {
			e.Barrier.Base = e.Barrier.Checkpoint - 1
			return e
		}
	case coordinator.DiscardCheckpoint:
		if c.plant == DeletesShared {
			var shared []snapshot.StateHandle
			c.checks.byURI[e.Ref.URI].checkpoint.EachHandle(func(h snapshot.StateHandle) {
				if h.IsShared() {
					shared = append(shared, h)
				}
			})
			d.carryOut(coordinator.DiscardHandles{Checkpoint: e.Ref.ID, Handles: shared})
		}
		if c.plant == DiscardsLatest {
			e.Ref = coordinator.CheckpointRef(c.checks.records[d.job.id].Latest)
			return e
		}
	}
	return effect
}

// sweepBlindly deletes the shared files of fenced attempts.
func (c *cluster) sweepBlindly(request checkpointstore.SweepRequest) {
	prefix := objectName(request.Base) + "/shared/"
	for object, err := range c.storage.objects.List(context.Background(), prefix) {
		var attempt ids.AttemptID
		if err == nil {
			_, err = fmt.Sscanf(strings.TrimPrefix(object.Name, prefix), "%d.%d/", &attempt.Token, &attempt.Number)
		}
		if err == nil && attempt.Less(request.Below) {
			err = c.storage.objects.Delete(context.Background(), object.Name)
		}
		if err != nil {
			panic(err)
		}
	}
}

// plantedDeployment makes a coordinator's mistakes in what it gives a subtask
// to restore.
func (c *cluster) plantedDeployment(d coordinator.TaskDeployment) coordinator.TaskDeployment {
	if c.plant == ForgetsInFlight {
		d.InFlight = nil
	}
	if c.plant == RestoresInFlightTwice {
		d.InFlight = slices.Concat(d.InFlight, d.InFlight)
	}
	if c.plant != WatermarkGoesBack && c.plant != DealsTwice && c.plant != LeavesTimers {
		return d
	}
	d.Restore = slices.Clone(d.Restore)
	for i := range d.Restore {
		st := &d.Restore[i]
		if c.plant == WatermarkGoesBack {
			st.Lists = slices.DeleteFunc(slices.Clone(st.Lists), func(l snapshot.OperatorStateHandle) bool { return l.Name == "watermark" })
		}
		if c.plant == DealsTwice {
			st.Lists = slices.Clone(st.Lists)
			for n := range st.Lists {
				if l := &st.Lists[n]; l.Redistribution == snapshot.SplitEvenly {
					l.Selected = nil // all that the file has
				}
			}
		}
		if n := len(st.Keyed) - 1; c.plant == LeavesTimers && n > 1 && st.Keyed[n].States[0].Kind == timer.Stored {
			st.Keyed = st.Keyed[:n]
		}
	}
	return d
}

// overwrite writes a record as if there were no fencing.
func (c *cluster) overwrite(record checkpointstore.JobRecord) {
	content, err := checkpointstore.EncodeRecord(record)
	if err != nil {
		panic(err)
	}
	name := objectName(checkpointstore.ClusterURI(haDir, clusterID)) + "/jobs/" + string(record.Job) + "/record"
	_, etag, err := c.storage.objects.Read(context.Background(), name, 1<<30)
	if err == nil {
		_, err = c.storage.objects.put(context.Background(), name, content, objectstore.IfMatch(etag))
	}
	if err != nil {
		panic(err)
	}
}
