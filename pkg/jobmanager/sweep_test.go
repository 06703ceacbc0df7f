package jobmanager

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/pb"
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
