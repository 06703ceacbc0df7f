package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testJob = ids.JobID("0123456789abcdef0123456789abcdef")
	testDir = "mem://checkpoints"
)

// machine is a coordinator that does what the test says.
type machine struct {
	mu     sync.Mutex
	events []coordinator.Event
	// react gives the effects of an event; nil for none.
	react  func(coordinator.Event) []coordinator.Effect
	status coordinator.Status
}

func (m *machine) Step(_ time.Time, event coordinator.Event) []coordinator.Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, event)
	if m.react == nil {
		return nil
	}
	return m.react(event)
}

func (m *machine) NextDeadline() (time.Time, bool) { return time.Time{}, false }

func (m *machine) Status() coordinator.Status { return m.status }

// of lists the events of one type.
func of[T coordinator.Event](m *machine) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []T
	for _, event := range m.events {
		if e, ok := event.(T); ok {
			found = append(found, e)
		}
	}
	return found
}

// cluster records what a driver wants of it.
type cluster struct {
	mu    sync.Mutex
	calls []string
}

func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

func (c *cluster) RequestSlots(_ ids.JobID, attempt ids.AttemptID, count int, _ []ids.TaskManagerID) {
	c.note("request %s %d", attempt, count)
}
func (c *cluster) ReleaseSlots(_ ids.JobID, attempt ids.AttemptID) { c.note("release %s", attempt) }
func (c *cluster) LaunchExecutor(e ids.ExecutorID, slots int)      { c.note("launch %s %d", e, slots) }
func (c *cluster) StopExecutor(e ids.ExecutorID, kill bool, _ time.Duration) {
	c.note("stop %s kill=%t", e, kill)
}
func (c *cluster) Send(e ids.ExecutorID, command *pb.ExecutorCommand) {
	if cancel := command.GetCancel(); cancel != nil {
		c.note("send %s Cancel keep %d", e, cancel.GetKeepUpTo())
		return
	}
	c.note("send %s %T", e, command.GetKind())
}

// world is one object store with faults and what drivers need around it.
type world struct {
	store   *memory.Store
	mu      sync.Mutex
	decide  func(faulty.Call) faulty.Fault
	calls   []faulty.Call
	nonces  int
	records *checkpointstore.ClusterStore
	points  *checkpointstore.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{store: memory.New(testDir)}
	faults := faulty.New(w.store, func(call faulty.Call) faulty.Fault {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, call)
		if w.decide == nil {
			return faulty.Fault{}
		}
		return w.decide(call)
	}, func(ctx context.Context, _ faulty.Call, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	w.records = checkpointstore.NewClusterStore(objectstore.Sub(faults, "ha"))
	w.points = checkpointstore.New(func(uri string) (objectstore.Store, error) {
		return objectstore.Sub(faults, strings.TrimPrefix(strings.TrimPrefix(uri, testDir), "/")), nil
	})
	if result := w.records.CreateRecord(t.Context(), FirstRecord(testJob, "first")); result.Outcome != checkpointstore.Swapped {
		t.Fatal(result.Err)
	}
	return w
}

// fail sets what the store does from now on; nil lets everything pass.
func (w *world) fail(decide func(faulty.Call) faulty.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decide = decide
}

func (w *world) count(op faulty.Op, part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, call := range w.calls {
		if call.Op == op && strings.Contains(call.Name, part) {
			n++
		}
	}
	return n
}

func (w *world) nonce() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nonces++
	return fmt.Sprintf("nonce-%d", w.nonces)
}

func (w *world) record(t *testing.T) checkpointstore.VersionedRecord {
	t.Helper()
	w.fail(nil)
	record, err := w.records.ReadRecord(context.Background(), testJob)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// start starts a driver that claims the job at once.
func (w *world) start(m *machine, c Cluster) *Driver {
	react := m.react
	m.react = func(event coordinator.Event) []coordinator.Effect {
		if _, first := event.(coordinator.DeadlinePassed); first {
			return []coordinator.Effect{coordinator.ClaimJob{}}
		}
		if react == nil {
			return nil
		}
		return react(event)
	}
	return Start(Options{
		Job: testJob, Name: "test", Graph: &graph.ExecutionGraph{Vertices: []graph.Vertex{{Name: "v", Parallelism: 1}}},
		Machine: m, Records: w.records, Checkpoints: w.points, Cluster: c, CheckpointDir: testDir + "/chk",
		Nonce: w.nonce, Log: zap.NewNop(), History: w.history(),
	})
}

// history is that of a new JobManager, of two checkpoints.
func (w *world) history() *History { return NewHistory(testJob, w.records, 2, zap.NewNop()) }

func running(latest ids.CheckpointID) coordinator.Record {
	ref := coordinator.CheckpointRef{ID: latest, URI: fmt.Sprintf("%s/chk/%s/chk-%d", testDir, testJob, latest)}
	return coordinator.Record{Status: coordinator.RunningStatus, Latest: ref, NextCheckpointBlock: 16}
}

func TestI10PublicationOfUnknownOutcomeIsLookedUpUntilKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if e, ok := event.(coordinator.JobClaimed); ok {
				return []coordinator.Effect{coordinator.PublishCheckpoint{Token: e.Token, Checkpoint: 1, Record: running(1)}}
			}
			return nil
		}}
		// From the publication on writes happen but their replies are lost, and nothing can be read.
		w.fail(func(call faulty.Call) faulty.Fault {
			switch {
			case call.Op == faulty.PutIf && w.nonces >= 2:
				return faulty.Fault{After: faulty.ErrInjected}
			case call.Op == faulty.Read && w.nonces >= 2:
				return faulty.Fault{Before: faulty.ErrInjected}
			}
			return faulty.Fault{}
		})
		d := w.start(m, &cluster{})
		defer d.Stop()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := len(of[coordinator.CheckpointPublished](m)) + len(of[coordinator.PublishFailed](m)); n != 0 {
			t.Fatalf("%d answers to a publication of which nothing is known", n)
		}
		w.fail(nil)
		time.Sleep(pauseMax + time.Second)
		synctest.Wait()
		if got := of[coordinator.CheckpointPublished](m); len(got) != 1 || got[0].Checkpoint != 1 {
			t.Fatalf("published: %v", got)
		}
		if got := w.record(t); got.Latest.ID != 1 || got.Token != 1 {
			t.Errorf("record has checkpoint %d, token %d", got.Latest.ID, got.Token)
		}
	})
}

func TestPublicationThatSurelyFailedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if e, ok := event.(coordinator.JobClaimed); ok {
				w.fail(func(call faulty.Call) faulty.Fault {
					if call.Op == faulty.PutIf {
						return faulty.Fault{Before: faulty.ErrInjected}
					}
					return faulty.Fault{}
				})
				return []coordinator.Effect{coordinator.PublishCheckpoint{Token: e.Token, Checkpoint: 1, Record: running(1)}}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := of[coordinator.PublishFailed](m); len(got) != 1 {
			t.Fatalf("publication that was refused: %v", got)
		}
		if got := w.record(t); got.Latest.ID != 0 {
			t.Errorf("record has checkpoint %d", got.Latest.ID)
		}
	})
}

func TestRecordUpdatesAreRepeatedAndTheLatestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			e, ok := event.(coordinator.JobClaimed)
			if !ok {
				return nil
			}
			w.fail(func(call faulty.Call) faulty.Fault {
				if call.Op == faulty.PutIf {
					return faulty.Fault{Before: faulty.ErrInjected}
				}
				return faulty.Fault{}
			})
			var effects []coordinator.Effect
			for revision := range uint64(5) {
				record := running(0)
				record.Latest = coordinator.CheckpointRef{}
				record.Restarts = int(revision)
				effects = append(effects, coordinator.UpdateRecord{Token: e.Token, Revision: revision + 1, Record: record})
			}
			return effects
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		time.Sleep(10 * time.Second)
		w.fail(nil)
		time.Sleep(pauseMax + time.Second)
		synctest.Wait()
		answers := of[coordinator.RecordUpdated](m)
		if len(answers) == 0 || answers[len(answers)-1].Revision != 5 || len(answers) > 2 {
			t.Errorf("answers: %v", answers)
		}
		if got := w.record(t); got.Restarts != 4 {
			t.Errorf("record has %d restarts, want the latest content's 4", got.Restarts)
		}
	})
}

func TestI8OldLeaderIsFencedAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := &machine{}
		old.react = func(event coordinator.Event) []coordinator.Effect {
			switch e := event.(type) {
			case coordinator.TaskManagerLost: // what wakes the old leader
				return []coordinator.Effect{coordinator.PublishCheckpoint{Token: 1, Checkpoint: 7, Record: running(7)}}
			case coordinator.Fenced:
				return []coordinator.Effect{coordinator.StepDown(e)}
			}
			return nil
		}
		first := w.start(old, &cluster{})
		synctest.Wait()
		next := &machine{}
		second := w.start(next, &cluster{})
		defer second.Stop()
		synctest.Wait()
		if got := of[coordinator.JobClaimed](next); len(got) != 1 || got[0].Token != 2 {
			t.Fatalf("second leader: %v", got)
		}
		before := w.record(t)
		first.Deliver(coordinator.TaskManagerLost{})
		<-first.Done()
		if first.End() != SteppedDown {
			t.Errorf("the old leader ended as %d", first.End())
		}
		if got := of[coordinator.Fenced](old); len(got) != 1 || got[0].Token != 2 {
			t.Errorf("fenced: %v", got)
		}
		if len(of[coordinator.CheckpointPublished](old)) != 0 {
			t.Error("the old leader published a checkpoint")
		}
		if after := w.record(t); after.ETag != before.ETag {
			t.Errorf("the old leader changed the record to %+v", after)
		}
	})
}

// TestI8LeaderStepsDownWhenItsRecordIsGoneOrPutBack drives the real
// coordinator: it drops fences below its own token.
func TestI8LeaderStepsDownWhenItsRecordIsGoneOrPutBack(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w *world){
		"deleted": func(t *testing.T, w *world) {
			if err := w.records.DeleteJob(t.Context(), testJob); err != nil {
				t.Fatal(err)
			}
		},
		"put back": func(t *testing.T, w *world) {
			if err := w.records.DeleteJob(t.Context(), testJob); err != nil {
				t.Fatal(err)
			}
			if result := w.records.CreateRecord(t.Context(), FirstRecord(testJob, "backup")); result.Outcome != checkpointstore.Swapped {
				t.Fatal(result.Err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := graph.ExecutionGraph{Vertices: []graph.Vertex{{Name: "v", Chain: []ids.OperatorUID{"v"}, Parallelism: 1}}}
				d := Start(Options{
					Job: testJob, Name: "test", Graph: &g, Machine: coordinator.New(coordinator.Config{Job: testJob}, g),
					Records: w.records, Checkpoints: w.points, Cluster: &cluster{}, CheckpointDir: testDir + "/chk",
					Nonce: w.nonce, Log: zap.NewNop(), History: w.history(),
				})
				defer d.Stop()
				synctest.Wait()
				if got := w.record(t); got.Token != 1 {
					t.Fatalf("the record has token %d, want our claim", got.Token)
				}
				spoil(t, w)
				// A cancel is the next thing to be written.
				_, err := d.Cancel(t.Context())
				<-d.Done()
				if d.End() != SteppedDown || !errors.Is(err, ErrSteppedDown) {
					t.Errorf("ended as %d, the cancel was answered %v", d.End(), err)
				}
			})
		})
	}
}

func TestClaimTellsWhatWasThereAndFailsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Read {
				return faulty.Fault{Before: faulty.ErrInjected}
			}
			return faulty.Fault{}
		})
		m := &machine{}
		d := w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := of[coordinator.JobClaimFailed](m); len(got) != 1 {
			t.Fatalf("claim while nothing can be read: %v", got)
		}
		w.fail(nil)
		d.Deliver(coordinator.DeadlinePassed{})
		synctest.Wait()
		got := of[coordinator.JobClaimed](m)
		if len(got) != 1 || got[0].Token != 1 || got[0].Record.Status != coordinator.Created {
			t.Fatalf("claimed: %v", got)
		}
	})
}

func completed(id ids.CheckpointID) *snapshot.CompletedCheckpoint {
	return &snapshot.CompletedCheckpoint{
		Job: testJob, ID: id, Attempt: ids.AttemptID{Token: 1, Number: 1}, Kind: snapshot.Checkpoint,
		TriggeredAt: time.UnixMilli(1).UTC(), CompletedAt: time.UnixMilli(2).UTC(),
	}
}

func TestMetadataIsWrittenReadAndDeleted(t *testing.T) {
	t.Run("own", func(t *testing.T) { testMetadata(t, false) })
	t.Run("claimed", func(t *testing.T) { testMetadata(t, true) })
}

func testMetadata(t *testing.T, claimed bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			switch e := event.(type) {
			case coordinator.JobClaimed:
				// The first reply is lost: the content is there all the same.
				lost := false
				w.fail(func(call faulty.Call) faulty.Fault {
					if call.Op == faulty.PutIf && !lost {
						lost = true
						return faulty.Fault{After: faulty.ErrInjected}
					}
					return faulty.Fault{}
				})
				return []coordinator.Effect{coordinator.PersistMetadata{Token: e.Token, Checkpoint: completed(3)}}
			case coordinator.MetadataPersisted:
				return []coordinator.Effect{coordinator.LoadCheckpoint{Token: e.Token, Ref: coordinator.CheckpointRef{ID: 3, URI: e.URI}}}
			case coordinator.CheckpointLoaded:
				return []coordinator.Effect{coordinator.LoadCheckpoint{
					Token: e.Token, Ref: coordinator.CheckpointRef{ID: 9, URI: strings.Replace(e.Ref.URI, "chk-3", "chk-9", 1)},
				}}
			case coordinator.CheckpointLoadFailed:
				three := coordinator.CheckpointRef{ID: 3, URI: strings.Replace(e.Ref.URI, "chk-9", "chk-3", 1)}
				return []coordinator.Effect{coordinator.DiscardCheckpoint{Ref: three, Claimed: claimed}}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := of[coordinator.CheckpointLoaded](m); len(got) != 1 || got[0].Checkpoint.ID != 3 || !strings.HasSuffix(got[0].Base, string(testJob)) {
			t.Fatalf("loaded: %v", got)
		}
		if got := of[coordinator.CheckpointLoadFailed](m); len(got) != 1 || got[0].Kind != coordinator.CorruptCheckpoint {
			t.Errorf("a checkpoint that does not exist: %v", got)
		}
		for object := range w.store.List(t.Context(), "chk") {
			t.Errorf("%s is left", object.Name)
		}
	})
}

// Where nothing of the job is to be seen, a file system may not be mounted.
func TestI9NothingToSeeIsNoMissingCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if e, ok := event.(coordinator.JobClaimed); ok {
				return []coordinator.Effect{coordinator.LoadCheckpoint{Token: e.Token, Ref: running(3).Latest}}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		got := of[coordinator.CheckpointLoadFailed](m)
		if len(got) != 1 || got[0].Kind != coordinator.LostProcess || !strings.Contains(got[0].Reason, "mounted") {
			t.Errorf("a directory without anything: %v", got)
		}
	})
}

// What a task calls corrupt is read here, and what comes of it is what this
// JobManager finds.
func TestI9StateIsVerified(t *testing.T) {
	content := []byte("state")
	handle := snapshot.StateHandle{Name: "chk-3/f", Size: int64(len(content)), CRC32C: crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))}
	flipped := bytes.Clone(content)
	flipped[2] ^= 1
	const job = "chk/" + string(testJob) + "/"
	for name, c := range map[string]struct {
		stored []byte // nil for none
		alone  bool   // nothing else of the job is to be seen
		fault  error  // of every read
		once   bool   // of the first read only
		want   coordinator.FailureKind
	}{
		"whole":                    {stored: content},
		"other bytes":              {stored: flipped, want: coordinator.CorruptCheckpoint},
		"too few":                  {stored: content[:3], want: coordinator.CorruptCheckpoint},
		"missing":                  {want: coordinator.CorruptCheckpoint},
		"missing, and all else":    {alone: true, want: coordinator.LostProcess},
		"missing at the first try": {stored: content, fault: objectstore.ErrNotExist, once: true},
		"denied":                   {stored: content, fault: objectstore.ErrDenied, want: coordinator.LostProcess},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				put := func(name string, content []byte) {
					if _, err := w.store.PutIf(t.Context(), job+name, content, objectstore.IfAbsent()); err != nil {
						t.Fatal(err)
					}
				}
				if c.stored != nil {
					put(handle.Name, c.stored)
				}
				if !c.alone {
					put("chk-3/_metadata", nil)
				}
				reads := 0
				w.fail(func(call faulty.Call) faulty.Fault {
					if call.Op == faulty.Open && c.fault != nil {
						if reads++; reads == 1 || !c.once {
							return faulty.Fault{Before: c.fault}
						}
					}
					return faulty.Fault{}
				})
				m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
					if e, ok := event.(coordinator.JobClaimed); ok {
						return []coordinator.Effect{coordinator.VerifyState{
							Token: e.Token, Ref: running(3).Latest, Base: testDir + "/chk/" + string(testJob), Handles: []snapshot.StateHandle{handle},
						}}
					}
					return nil
				}}
				d := w.start(m, &cluster{})
				defer d.Stop()
				synctest.Wait()
				whole, not := of[coordinator.StateVerified](m), of[coordinator.StateVerifyFailed](m)
				var got coordinator.FailureKind
				if len(not) == 1 {
					got = not[0].Kind
				}
				if len(whole)+len(not) != 1 || got != c.want {
					t.Errorf("verified %v, failed %v; want kind %v", whole, not, c.want)
				}
			})
		})
	}
}

func TestI9LoadThatFailsIsNoPermanentFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Read && strings.HasSuffix(call.Name, "_metadata") {
				return faulty.Fault{Before: objectstore.ErrDenied}
			}
			return faulty.Fault{}
		})
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if e, ok := event.(coordinator.JobClaimed); ok {
				return []coordinator.Effect{coordinator.LoadCheckpoint{Token: e.Token, Ref: running(3).Latest}}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		synctest.Wait()
		if got := of[coordinator.CheckpointLoadFailed](m); len(got) != 1 || got[0].Kind != coordinator.LostProcess {
			t.Errorf("denied read of metadata: %v", got)
		}
	})
}

func TestDeletionsAreTriedAFewTimesAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Delete && strings.HasSuffix(call.Name, "/bad") {
				return faulty.Fault{Before: faulty.ErrInjected}
			}
			return faulty.Fault{}
		})
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if _, ok := event.(coordinator.JobClaimed); ok {
				return []coordinator.Effect{
					coordinator.DiscardHandles{Checkpoint: 1, Dir: testDir + "/savepoints", Handles: []snapshot.StateHandle{{Name: "bad", Size: 1}}},
					coordinator.DiscardHandles{Checkpoint: 1, Handles: []snapshot.StateHandle{{Name: "chk-1/good", Size: 1}}},
				}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		defer d.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.count(faulty.Delete, "/bad"); n != deletionTriesMax {
			t.Errorf("the file that cannot be deleted was tried %d times, want %d", n, deletionTriesMax)
		}
		if n := w.count(faulty.Delete, "/good"); n != 1 {
			t.Errorf("the file behind it was tried %d times, want 1", n)
		}
	})
}

func TestRequestsAreAnsweredOnceAndFailWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			switch e := event.(type) {
			case coordinator.SavepointRequested:
				if e.Dir == "never" {
					return nil
				}
				return []coordinator.Effect{coordinator.Answer{Request: e.Request, Path: e.Dir + "/savepoint", Error: "uncommitted"}}
			case coordinator.CheckpointRequested:
				return []coordinator.Effect{coordinator.Answer{Request: e.Request, Checkpoint: 7, Path: "chk-7"}}
			case coordinator.CancelRequested:
				return []coordinator.Effect{
					coordinator.Answer{Request: e.Request, Status: coordinator.CanceledStatus},
					coordinator.JobEnded{Status: coordinator.CanceledStatus},
				}
			}
			return nil
		}}
		d := w.start(m, &cluster{})
		answer, err := d.Savepoint(t.Context(), coordinator.SavepointRequested{Dir: "dir", Stop: true})
		if err == nil || err.Error() != "uncommitted" || answer.Path != "dir/savepoint" {
			t.Errorf("savepoint: %v, %v", answer, err)
		}
		if answer, err = d.Checkpoint(t.Context()); err != nil || answer.Checkpoint != 7 || answer.Path != "chk-7" {
			t.Errorf("checkpoint: %v, %v", answer, err)
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Savepoint(impatient, coordinator.SavepointRequested{Dir: "never"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("savepoint that nobody waits for any more: %v", err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := d.Savepoint(t.Context(), coordinator.SavepointRequested{Dir: "never"})
			waiting <- err
		}()
		synctest.Wait()
		if answer, err := d.Cancel(t.Context()); err != nil || answer.Status != coordinator.CanceledStatus {
			t.Errorf("cancel: %v, %v", answer, err)
		}
		if err := <-waiting; !errors.Is(err, ErrJobEnded) {
			t.Errorf("request that the end of the job overtook: %v", err)
		}
		<-d.Done()
		if _, err := d.Cancel(t.Context()); !errors.Is(err, ErrJobEnded) {
			t.Errorf("cancel of an ended job: %v", err)
		}
		if d.End() != Ended {
			t.Errorf("the driver ended as %d", d.End())
		}
	})
}

func TestEffectsReachTheClusterInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		executor := ids.ExecutorID{Job: testJob, Attempt: ids.AttemptID{Token: 1, Number: 1}, TaskManager: "tm"}
		m := &machine{react: func(event coordinator.Event) []coordinator.Effect {
			if _, ok := event.(coordinator.JobClaimed); !ok {
				return nil
			}
			return []coordinator.Effect{
				coordinator.RequestSlots{Attempt: executor.Attempt, Count: 2},
				coordinator.LaunchExecutor{Executor: executor, Slots: 2},
				coordinator.DeployTasks{Executor: executor, Plan: &coordinator.Deployment{Attempt: executor.Attempt}},
				coordinator.AssignSplits{Executor: executor},
				coordinator.TriggerCheckpoint{Executor: executor},
				coordinator.NotifyComplete{Executor: executor, Checkpoint: 1},
				coordinator.NotifyAborted{Executor: executor, Checkpoint: 2, Reason: coordinator.Expired},
				coordinator.FinishTasks{Executor: executor},
				coordinator.CancelTasks{Executor: executor, KeepUpTo: 7},
				coordinator.StopExecutor{Executor: executor, Kill: true},
				coordinator.ReleaseSlots{Attempt: executor.Attempt},
			}
		}}
		c := &cluster{}
		d := w.start(m, c)
		defer d.Stop()
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		want := []string{
			"request 1.1 2", "launch", "Deploy", "AssignSplits", "Trigger", "Notify", "Notify", "Finish", "Cancel keep 7", "stop", "release 1.1",
		}
		if len(c.calls) != len(want) {
			t.Fatalf("calls: %q", c.calls)
		}
		for i, call := range c.calls {
			if !strings.Contains(call, want[i]) {
				t.Errorf("call %d is %q, want %q", i, call, want[i])
			}
		}
	})
}

func TestReportsWaitForABusyJobAndLossesDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mail := newMailbox()
		for range reportsMax {
			if err := mail.report(t.Context(), coordinator.CommitAcked{}); err != nil {
				t.Fatal(err)
			}
		}
		mail.put(coordinator.TaskManagerLost{})
		reported := make(chan error, 1)
		go func() { reported <- mail.report(t.Context(), coordinator.CommitAcked{Checkpoint: 9}) }()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := mail.report(impatient, coordinator.CommitAcked{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("report to a full mailbox: %v", err)
		}
		if events := mail.take(); len(events) != reportsMax+1 {
			t.Errorf("%d events, want %d", len(events), reportsMax+1)
		}
		if err := <-reported; err != nil {
			t.Error(err)
		}
		if events := mail.take(); !slices.Contains(events, coordinator.Event(coordinator.CommitAcked{Checkpoint: 9})) {
			t.Errorf("the report that waited is not there: %v", events)
		}
	})
}

func TestRatesAreOfTheLastSecondsAndCountersNeverGoBack(t *testing.T) {
	m := newMetrics(&graph.ExecutionGraph{Vertices: []graph.Vertex{{Parallelism: 2}}})
	at := time.Unix(1000, 0)
	first, second := ids.AttemptID{Token: 1, Number: 1}, ids.AttemptID{Token: 1, Number: 2}
	counted := func(index int32, in int64) []*pb.SubtaskMetrics {
		return []*pb.SubtaskMetrics{{Subtask: &pb.SubtaskRef{Index: index}, RecordsIn: in, RecordsOut: 2 * in}}
	}
	for second := range int64(20) {
		m.update(at.Add(time.Duration(second)*time.Second), first, counted(0, 100*second))
	}
	now := at.Add(19 * time.Second)
	got := m.of(now)[0]
	if got.in != 1900 || got.inRate != 100 || got.outRate != 200 {
		t.Errorf("%d records in at %g per second, out at %g", got.in, got.inRate, got.outRate)
	}
	m.update(now, first, counted(1, 50))
	m.update(now, first, counted(1, 40))
	if got := m.of(now)[0]; got.in != 1950 {
		t.Errorf("%d records in, want 1950", got.in)
	}
	if got := m.of(now.Add(time.Minute))[0]; got.inRate != 0 {
		t.Errorf("a job of which nothing is heard reads %g records per second", got.inRate)
	}
	m.update(now, second, counted(0, 7))
	m.update(now, first, counted(0, 5000))
	if got := m.of(now)[0]; got.in != 7 {
		t.Errorf("the next attempt has read %d records, want 7", got.in)
	}
}
