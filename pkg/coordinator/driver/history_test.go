package driver

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/snapshot"
)

func reportOf(id ids.CheckpointID) *snapshot.CheckpointReport {
	return &snapshot.CheckpointReport{
		ID: id, Kind: snapshot.Checkpoint, Completed: true, TriggeredAt: time.UnixMilli(1_700_000_000_000).UTC(), Duration: time.Second, Path: "chk",
		Parallelism: []int32{1}, Subtasks: []snapshot.SubtaskReport{{Acked: true, End: time.Millisecond, StateBytes: int64(id)}},
	}
}

// records makes a machine whose checkpoints end at once.
func records(list ...ids.CheckpointID) *machine {
	reports := make([]*snapshot.CheckpointReport, len(list))
	for i, id := range list {
		reports[i] = reportOf(id)
	}
	return recordsOf(reports...)
}

func recordsOf(reports ...*snapshot.CheckpointReport) *machine {
	return &machine{react: func(event coordinator.Event) []coordinator.Effect {
		var effects []coordinator.Effect
		if e, ok := event.(coordinator.JobClaimed); ok {
			for _, report := range reports {
				effects = append(effects, coordinator.RecordHistory{Report: report})
			}
			// Not later than the answer to what follows in the driver's order.
			effects = append(effects, coordinator.UpdateRecord{Token: e.Token, Revision: 1, Record: running(0)})
		}
		return effects
	}}
}

func idsOf(d *Driver) []uint64 {
	var list []uint64
	for _, c := range d.CheckpointsView().GetCheckpoints() {
		list = append(list, c.GetId())
	}
	return list
}

// What is remembered outlives the JobManager, and is bounded.
func TestHistoryIsFoundByTheNextJobManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.start(records(7, 8, 9), &cluster{})
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{9, 8}) {
			t.Errorf("remembered are %v", got)
		}
		d.Stop() // as good as killed: nothing is written at a stop
		if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, []ids.CheckpointID{8, 9}) {
			t.Fatalf("stored are %v, error %v", stored, err)
		}
		d = w.start(records(20), &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{20, 9}) {
			t.Errorf("after a restart %v are remembered", got)
		}
		for _, id := range []ids.CheckpointID{9, 20} {
			if report, err := d.options.History.Report(id); err != nil || !reflect.DeepEqual(report, reportOf(id)) {
				t.Errorf("report is %+v, error %v", report, err)
			}
		}
		if report, err := d.options.History.Report(8); report != nil || err != nil {
			t.Errorf("a forgotten report is %+v, error %v", report, err)
		}
	})
}

// The end of a job waits for its last report.
func TestHistoryOfTheEndIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if _, ok := event.(coordinator.JobClaimed); ok {
				return []coordinator.Effect{coordinator.RecordHistory{Report: reportOf(3)}, coordinator.JobEnded{Status: coordinator.FinishedStatus}}
			}
			return nil
		}}
		<-w.start(m, &cluster{}).Done()
		h := w.history()
		if err := h.Load(t.Context()); err != nil || len(h.Views()) != 1 || h.Views()[0].ID != 3 {
			t.Errorf("remembered are %v, error %v", h.Views(), err)
		}
	})
}

// A store that hangs, refuses or has lost its mind about the history holds up
// nothing: the record is written, and what is in memory is shown.
func TestHistoryNeverHoldsUpAJob(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{
		"refuses": {Before: objectstore.ErrDenied}, "hangs": {Delay: time.Hour}, "loses the reply": {After: objectstore.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fail(func(call faulty.Call) faulty.Fault {
					if strings.Contains(call.Name, "/history/") {
						return fault
					}
					return faulty.Fault{}
				})
				m := records(1, 2)
				d := w.start(m, &cluster{})
				time.Sleep(time.Second)
				synctest.Wait()
				if n := len(of[coordinator.RecordUpdated](m)); n != 1 {
					t.Errorf("the record was written %d times", n)
				}
				if got := idsOf(d); !reflect.DeepEqual(got, []uint64{2, 1}) {
					t.Errorf("remembered are %v", got)
				}
				time.Sleep(time.Minute)
				d.Stop()
			})
		})
	}
}

func TestBrokenHistoryIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.start(records(4), &cluster{})
		synctest.Wait()
		d.Stop()
		if err := w.records.PutReport(context.Background(), testJob, 5, []byte("nonsense")); err != nil {
			t.Fatal(err)
		}
		m := records(6)
		d = w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{6, 4}) || len(of[coordinator.RecordUpdated](m)) != 1 {
			t.Errorf("remembered are %v", got)
		}
	})
}

// When checkpoints end faster than the store writes, the oldest of those that
// wait are not written.
func TestHistoryQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.history()
		const n = historyQueueMax + 10
		for id := range ids.CheckpointID(n) {
			h.add(reportOf(id + 1))
		}
		h.finish()
		h.run(t.Context())
		if puts := w.count(faulty.PutIf, "/history/"); puts != historyQueueMax {
			t.Errorf("%d of %d were written, want %d", puts, n, historyQueueMax)
		}
		if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, []ids.CheckpointID{n - 1, n}) {
			t.Errorf("stored are %v, error %v", stored, err)
		}
	})
}

// A savepoint during which newer checkpoints ended is the last that ended.
func TestHistoryRemembersASlowSavepoint(t *testing.T) {
	for name, end := range map[string]time.Duration{"": time.Hour, "and the clock was set back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				slow := reportOf(7)
				slow.Kind, slow.Duration = snapshot.Savepoint, time.Hour
				slow.TriggeredAt = slow.TriggeredAt.Add(end - slow.Duration)
				d := w.start(recordsOf(reportOf(8), reportOf(9), slow), &cluster{})
				synctest.Wait()
				if got := idsOf(d); !reflect.DeepEqual(got, []uint64{9, 7}) {
					t.Errorf("remembered are %v", got)
				}
				if report, err := d.options.History.Report(7); err != nil || !reflect.DeepEqual(report, slow) {
					t.Errorf("report is %+v, error %v", report, err)
				}
				d.Stop()
				if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, []ids.CheckpointID{7, 9}) {
					t.Fatalf("stored are %v, error %v", stored, err)
				}
				d = w.start(records(), &cluster{})
				synctest.Wait()
				if got := idsOf(d); !reflect.DeepEqual(got, []uint64{9, 7}) {
					t.Errorf("after a restart %v are remembered", got)
				}
				d.Stop()
			})
		})
	}
}

// What an earlier JobManager wrote is ordered by when it ended, too.
func TestHistoryForgetsWhatEndedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := reportOf(7)
		slow.Duration = time.Hour
		d := w.start(recordsOf(reportOf(8), reportOf(9), slow), &cluster{})
		synctest.Wait()
		d.Stop()
		// This one is killed before it deletes anything.
		w.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Delete {
				return faulty.Fault{Before: faulty.ErrInjected}
			}
			return faulty.Fault{}
		})
		late := reportOf(20)
		late.TriggeredAt = late.TriggeredAt.Add(2 * time.Hour)
		d = w.start(recordsOf(late), &cluster{})
		synctest.Wait()
		d.Stop()
		w.fail(nil)
		d = w.start(records(), &cluster{})
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{20, 7}) {
			t.Errorf("of three that are stored %v are remembered", got)
		}
		d.Stop()
		d = w.start(records(21), &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{21, 20}) {
			t.Errorf("when another has ended %v are remembered", got)
		}
		if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, []ids.CheckpointID{20, 21}) {
			t.Errorf("stored are %v, error %v", stored, err)
		}
	})
}

// Nobody knows what ended last among reports that could not be read: they stay
// until they are too many.
func TestHistoryThatIsNotReadIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.start(records(7, 8), &cluster{})
		synctest.Wait()
		d.Stop()
		unreadable := func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Read && strings.Contains(call.Name, "/history/") {
				return faulty.Fault{Delay: time.Hour}
			}
			return faulty.Fault{}
		}
		for _, c := range []struct {
			ends ids.CheckpointID
			want []ids.CheckpointID
		}{{9, []ids.CheckpointID{7, 8, 9}}, {10, []ids.CheckpointID{7, 8, 9, 10}}, {11, []ids.CheckpointID{8, 9, 10, 11}}} {
			w.fail(unreadable)
			d = w.start(records(c.ends), &cluster{})
			time.Sleep(historyTimeout + time.Second)
			synctest.Wait()
			if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, c.want) {
				t.Errorf("when %d has ended %v are stored, error %v", c.ends, stored, err)
			}
			d.Stop()
		}
		w.fail(nil)
		d = w.start(records(12), &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := idsOf(d); !reflect.DeepEqual(got, []uint64{12, 11}) {
			t.Errorf("remembered are %v", got)
		}
		if stored, err := w.records.Reports(t.Context(), testJob); err != nil || !reflect.DeepEqual(stored, []ids.CheckpointID{11, 12}) {
			t.Errorf("stored are %v, error %v", stored, err)
		}
	})
}
