package jobmanager

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

// upload stores an artifact and returns its name.
func (r *rig) upload(content string) string {
	r.t.Helper()
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	if err := r.UploadArtifact(r.t.Context(), name, int64(len(content)), strings.NewReader(content)); err != nil {
		r.t.Fatal(err)
	}
	return name
}

func (r *rig) has(artifact string) bool {
	r.t.Helper()
	has, err := r.HasArtifact(r.t.Context(), &pb.HasArtifactRequest{Sha256: artifact})
	if err != nil {
		r.t.Fatal(err)
	}
	return has.GetExists()
}

func TestI4ArtifactsThatNoUnfinishedJobNeedsGoAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		needed, ended, unused := r.upload("needed"), r.upload("ended"), r.upload("unused")
		for _, artifact := range []string{needed, ended} {
			s := spec("job", 1)
			s.ArtifactSha256 = artifact
			id, err := r.submit(s)
			if err != nil {
				t.Fatal(err)
			}
			if artifact == ended {
				if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		r.close()
		r.open()
		defer r.close()
		synctest.Wait()
		if !r.has(needed) || r.has(ended) || r.has(unused) {
			t.Errorf("needed is there: %t; of an ended job: %t; of no job: %t; want only the first",
				r.has(needed), r.has(ended), r.has(unused))
		}
	})
}

// I9: what cannot be read may need any artifact.
func TestI9NothingIsSweptWhileAJobCannotBeUnderstood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		artifact := r.upload("needed")
		s := spec("job", 1)
		s.ArtifactSha256 = artifact
		if _, err := r.submit(s); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.close()
		r.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Read && strings.HasSuffix(call.Name, "/job") {
				return faulty.Fault{Before: objectstore.ErrNotExist}
			}
			return faulty.Fault{}
		})
		r.open()
		defer r.close()
		synctest.Wait()
		if !r.has(artifact) {
			t.Error("the artifact of the job that could not be read is gone")
		}
	})
}

// The JobManager is killed between the record of a job's end and the deletion
// of its checkpoints.
func TestI4CheckpointsOfAnEndedJobGoWithTheNextJobManager(t *testing.T) {
	for _, retention := range []string{"DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"} {
		t.Run(retention, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "execution.checkpointing.dir=s3://checkpoints", "execution.checkpointing.externalized-checkpoint-retention="+retention)
				id, err := r.submit(spec("job", 1))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				// As if the job had had two checkpoints, the second published.
				record, err := r.store.ReadRecord(t.Context(), ids.JobID(id))
				if err != nil {
					t.Fatal(err)
				}
				next := record.JobRecord
				next.Nonce = "with checkpoints"
				next.Latest = checkpointstore.CheckpointRef{ID: 2, URI: "s3://checkpoints/" + id + "/chk-2"}
				next.Retained = []checkpointstore.CheckpointRef{next.Latest}
				if result := r.store.SwapRecord(t.Context(), record, next); result.Outcome != checkpointstore.Swapped {
					t.Fatal(result.Err)
				}
				r.close()
				store, err := r.options.OpenStore(r.options.Config)("s3://checkpoints")
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"chk-1/1.1-0.0.0", "chk-2/1.1-0.0.0", "shared/1.1/1-0.0.0", "shared/1.1/1-0.0.1"} {
					if _, err := store.PutIf(t.Context(), id+"/"+name, nil, objectstore.IfAbsent()); err != nil {
						t.Fatal(err)
					}
				}
				// The second refers to one of the files that were uploaded for the first.
				checkpoint := &snapshot.CompletedCheckpoint{
					Job: ids.JobID(id), JobName: "job", ID: 2, Attempt: ids.AttemptID{Token: 1, Number: 1}, Kind: snapshot.Checkpoint,
					Operators: []snapshot.OperatorState{{UID: "count", Parallelism: 1, MaxParallelism: 1, Subtasks: []snapshot.OperatorSubtaskState{{
						UID: "count", Keyed: []snapshot.KeyedStateHandle{{Backend: "files", Files: []snapshot.StateFile{{
							Local: "1.sst", Handle: snapshot.StateHandle{Name: "shared/1.1/1-0.0.0", Size: 1, SharedSince: 1},
						}}}},
					}}}},
				}
				metadata, err := checkpointstore.EncodeMetadata(checkpoint)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := store.PutIf(t.Context(), id+"/chk-2/_metadata", metadata, objectstore.IfAbsent()); err != nil {
					t.Fatal(err)
				}
				r.open()
				defer r.close()
				synctest.Wait()
				var left []string
				for object, err := range store.List(t.Context(), "") {
					if err != nil {
						t.Fatal(err)
					}
					left = append(left, strings.TrimPrefix(object.Name, id+"/"))
				}
				want := []string{"chk-2/1.1-0.0.0", "chk-2/_metadata", "shared/1.1/1-0.0.0"}
				if retention == "DELETE_ON_CANCELLATION" {
					want = nil
				}
				if !slices.Equal(left, want) {
					t.Errorf("left: %v, want %v", left, want)
				}
			})
		})
	}
}
