package jobmanager

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// oneStore makes all stores of the rig parts of one, as those of a file system are.
func oneStore(t *testing.T, overrides ...string) *rig {
	t.Helper()
	r := newRig(t, overrides...)
	r.close()
	root := faulty.New(memory.New("mem://"), r.fault, func(ctx context.Context, _ faulty.Call, delay time.Duration) error {
		select {
		case <-time.After(delay):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r.options.OpenStore = func(*config.Config) checkpointstore.Opener {
		return func(uri string) (objectstore.Store, error) {
			_, name, hasScheme := strings.Cut(uri, "://")
			if !hasScheme {
				name = uri
			}
			return objectstore.Sub(root, strings.TrimPrefix(path.Clean(name), "/")), nil
		}
	}
	r.open()
	return r
}

// claiming is a submission that claims a savepoint.
func (r *rig) claiming() *pb.JobSpec {
	s := spec("job", 1)
	s.RestoreFrom = "/" + strings.TrimPrefix(r.savepointFor(128), "mem://")
	s.AllowNonRestoredState, s.ClaimRestored = true, true
	return s
}

// cancel ends a job, and then makes its record say what was published before.
func (r *rig) cancel(id string, published ...checkpointstore.CheckpointRef) {
	r.t.Helper()
	if _, err := r.CancelJob(r.t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	if len(published) == 0 {
		return
	}
	record, err := r.store.ReadRecord(r.t.Context(), ids.JobID(id))
	if err != nil {
		r.t.Fatal(err)
	}
	next := record.JobRecord
	next.Nonce, next.StartedAt = "with checkpoints", time.Now()
	next.Retained, next.Latest = published, published[len(published)-1]
	if result := r.store.SwapRecord(r.t.Context(), record, next); result.Outcome != checkpointstore.Swapped {
		r.t.Fatal(result.Err)
	}
}

func (r *rig) points() *checkpointstore.Store {
	return checkpointstore.New(r.options.OpenStore(nil))
}

// isThere reports whether there is a checkpoint or savepoint.
func (r *rig) isThere(uri string) bool {
	r.t.Helper()
	_, _, err := r.points().LoadMetadata(r.t.Context(), uri)
	if err != nil && !errors.Is(err, objectstore.ErrNotExist) {
		r.t.Fatal(err)
	}
	return err == nil
}

// The JobManager is killed between the record of the end of a job, which has
// claimed a savepoint, and the deletion of its checkpoints.
func TestI4ClaimedSavepointOfAnEndedJobGoesWithTheNextJobManager(t *testing.T) {
	own := checkpointstore.CheckpointRef{ID: 8, URI: "s3://checkpoints/job/chk-8"}
	const deletes, retains = "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"
	for name, test := range map[string]struct {
		retention string
		// published says what the record retains, with the savepoint as number 7.
		published func(savepoint string) []checkpointstore.CheckpointRef
		// replaced puts another savepoint in its place.
		replaced bool
		stays    bool
	}{
		"it is retained": {retention: deletes, published: func(sp string) []checkpointstore.CheckpointRef {
			return []checkpointstore.CheckpointRef{{ID: 7, URI: sp}, own}
		}},
		"it is retained, and the retention keeps it": {retention: retains, stays: true, published: func(sp string) []checkpointstore.CheckpointRef {
			return []checkpointstore.CheckpointRef{{ID: 7, URI: sp}, own}
		}},
		"it was pushed out": {retention: retains, published: func(string) []checkpointstore.CheckpointRef {
			return []checkpointstore.CheckpointRef{own}
		}},
		"nothing was published": {retention: deletes, stays: true, published: func(string) []checkpointstore.CheckpointRef { return nil }},
		"another number": {retention: deletes, stays: true, published: func(sp string) []checkpointstore.CheckpointRef {
			return []checkpointstore.CheckpointRef{{ID: 6, URI: sp}, own}
		}},
		"a newer one has its path": {retention: deletes, stays: true, replaced: true, published: func(sp string) []checkpointstore.CheckpointRef {
			return []checkpointstore.CheckpointRef{{ID: 7, URI: sp}, own}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := oneStore(t, "execution.checkpointing.dir=s3://checkpoints", "execution.checkpointing.externalized-checkpoint-retention="+test.retention)
				s := r.claiming()
				id, err := r.submit(s)
				if err != nil {
					t.Fatal(err)
				}
				r.cancel(id, test.published(s.GetRestoreFrom())...)
				r.close()
				if test.replaced {
					<-time.After(time.Minute)
					loc := checkpointstore.LocationOf(s.GetRestoreFrom())
					if err := r.points().DiscardCheckpoint(t.Context(), loc); err != nil {
						t.Fatal(err)
					}
					newer := &snapshot.CompletedCheckpoint{Job: "ffffffffffffffffffffffffffffffff", ID: 7, Kind: snapshot.Savepoint, CompletedAt: time.Now()}
					if _, err := r.points().PersistMetadata(t.Context(), loc, newer); err != nil {
						t.Fatal(err)
					}
				}
				r.open()
				defer r.close()
				synctest.Wait()
				if stays := r.isThere(s.GetRestoreFrom()); stays != test.stays {
					t.Errorf("the savepoint stays: %t, want %t", stays, test.stays)
				}
			})
		})
	}
}

// What a job's end failed to delete is there for others to start from: then it
// stays as long as they need it.
func TestClaimedSavepointStaysWhileAnotherJobIsStartedFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneStore(t, "execution.checkpointing.externalized-checkpoint-retention=DELETE_ON_CANCELLATION")
		s := r.claiming()
		ended, err := r.submit(s)
		if err != nil {
			t.Fatal(err)
		}
		r.cancel(ended, checkpointstore.CheckpointRef{ID: 7, URI: s.GetRestoreFrom()}, checkpointstore.CheckpointRef{ID: 8, URI: "/checkpoints/job/chk-8"})
		s.RestoreFrom += "/_metadata"
		s.ClaimRestored = false
		user, err := r.submit(s)
		if err != nil {
			t.Fatal(err)
		}
		r.close()
		r.open()
		synctest.Wait()
		if !r.isThere(s.GetRestoreFrom()) {
			t.Error("the savepoint is gone, and a job is to start from it")
		}
		r.cancel(user)
		r.close()
		r.open()
		defer r.close()
		synctest.Wait()
		if r.isThere(s.GetRestoreFrom()) {
			t.Error("nobody needs the savepoint any more, and it stays")
		}
	})
}

// Of two that claimed it one after the other the later one keeps it, or deletes it.
func TestClaimedSavepointIsTheLaterJobs(t *testing.T) {
	for _, retention := range []string{"DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"} {
		t.Run(retention, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := oneStore(t, "execution.checkpointing.externalized-checkpoint-retention=DELETE_ON_CANCELLATION")
				s := r.claiming()
				for _, own := range []string{"/checkpoints/a/chk-8", "/checkpoints/b/chk-8"} {
					id, err := r.submit(s)
					if err != nil {
						t.Fatal(err)
					}
					r.cancel(id, checkpointstore.CheckpointRef{ID: 7, URI: s.GetRestoreFrom()}, checkpointstore.CheckpointRef{ID: 8, URI: own})
					<-time.After(time.Minute)
					s.Config = map[string]string{"execution.checkpointing.externalized-checkpoint-retention": retention}
				}
				r.close()
				r.open()
				defer r.close()
				synctest.Wait()
				if stays, want := r.isThere(s.GetRestoreFrom()), retention == "RETAIN_ON_CANCELLATION"; stays != want {
					t.Errorf("the savepoint stays: %t, want %t", stays, want)
				}
			})
		})
	}
}

// Each way to write a path is the same savepoint.
func TestOneSavepointIsClaimedOnceHoweverItIsWritten(t *testing.T) {
	for name, write := range map[string]func(string) string{
		"slash":    func(uri string) string { return uri + "/" },
		"metadata": func(uri string) string { return uri + "/_metadata" },
		"dots":     func(uri string) string { return "/else/.." + uri },
		"file URI": func(uri string) string { return "file://" + uri },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := oneStore(t)
					s := r.claiming()
					from := s.GetRestoreFrom()
					first, err := r.submit(s)
					if err != nil {
						t.Fatal(err)
					}
					if restarts {
						synctest.Wait()
						r.close()
						r.open()
					}
					defer r.close()
					s.RestoreFrom = write(from)
					if !r.isThere(s.GetRestoreFrom()) {
						t.Fatalf("%s is not the same savepoint", s.GetRestoreFrom())
					}
					if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), "belongs to job "+first) {
						t.Errorf("%s is claimed a second time: %v", s.GetRestoreFrom(), err)
					}
				})
			})
		}
	}
}

// A directory may have two names of which nothing in them tells, as with a symbolic link.
func TestOneSavepointIsClaimedOnceByWhatItsMetadataSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneStore(t)
		defer r.close()
		s := r.claiming()
		first, err := r.submit(s)
		if err != nil {
			t.Fatal(err)
		}
		content, _, err := r.points().LoadMetadata(t.Context(), s.GetRestoreFrom())
		if err != nil {
			t.Fatal(err)
		}
		if s.RestoreFrom, err = r.points().PersistMetadata(t.Context(), checkpointstore.SavepointAt("/link"), content); err != nil {
			t.Fatal(err)
		}
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), "belongs to job "+first) {
			t.Errorf("it is claimed a second time: %v", err)
		}
		s.ClaimRestored = false
		if _, err := r.submit(s); err != nil {
			t.Errorf("without a claim: %v", err)
		}
	})
}

// Each looks at the other jobs before either is one.
func TestOfTwoSubmissionsAtOnceOneClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneStore(t)
		defer r.close()
		s := r.claiming()
		r.fail(func(call faulty.Call) faulty.Fault {
			if strings.HasSuffix(call.Name, "/job") {
				return faulty.Fault{Delay: time.Second}
			}
			return faulty.Fault{}
		})
		const submissions = 3
		errs := make([]error, submissions)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = r.submit(s) })
		}
		all.Wait()
		accepted := 0
		for _, err := range errs {
			switch {
			case err == nil:
				accepted++
			case !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), "which is being submitted: it cannot be claimed"):
				t.Errorf("submission: %v", err)
			}
		}
		if accepted != 1 {
			t.Errorf("%d of %d submissions were accepted", accepted, submissions)
		}
	})
}

// A submission that fails leaves no claim behind, wherever it fails.
func TestSubmissionThatFailsClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneStore(t)
		defer r.close()
		s := r.claiming()
		s.AllowNonRestoredState = false
		if _, err := r.submit(s); !errors.Is(err, transport.ErrInvalid) {
			t.Fatalf("state that is lost: %v", err)
		}
		s.AllowNonRestoredState = true
		r.fail(func(call faulty.Call) faulty.Fault {
			if strings.HasSuffix(call.Name, "/job") {
				return faulty.Fault{Before: objectstore.ErrUnavailable}
			}
			return faulty.Fault{}
		})
		if _, err := r.submit(s); !errors.Is(err, transport.ErrUnavailable) {
			t.Fatalf("a store that fails: %v", err)
		}
		r.fail(nil)
		if _, err := r.submit(s); err != nil {
			t.Errorf("nobody has claimed it: %v", err)
		}
	})
}
