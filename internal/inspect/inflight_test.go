package inspect

import (
	"context"
	"reflect"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/local"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Records that were in flight are described by edge, and their files are
// verified like all others.
func TestRecordsInFlightAreDescribedAndVerified(t *testing.T) {
	opener := func(uri string) (objectstore.Store, error) { return local.New(uri, uri) }
	const job = ids.JobID("0123456789abcdef0123456789abcdef")
	cc := &snapshot.CompletedCheckpoint{
		Job: job, ID: 4, Attempt: ids.AttemptID{Token: 1, Number: 1}, Kind: snapshot.Checkpoint,
		InFlight: []snapshot.InFlight{
			{
				Handle: snapshot.StateHandle{Name: "chk-4/1.1-gone", Size: 9},
				Parts:  []snapshot.ChannelPart{{Edge: 1, Length: 4}, {Edge: 1, Producer: 1, Output: true, Offset: 4, Length: 5}},
			},
		},
		Edges: []snapshot.EdgeState{
			{Name: "quiet", Producers: 1, Consumers: 1},
			{Name: "in[] -> op[0]", Type: "int", Partitioner: "hash", Producers: 2, Consumers: 1},
		},
	}
	path, err := checkpointstore.New(opener).PersistMetadata(t.Context(), checkpointstore.CheckpointLocation(t.TempDir(), job, 4), cc)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := Open(t.Context(), opener, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	summary, err := stored.Summary(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []cliresult.InspectedEdge{{Edge: "in[] -> op[0]", Type: "int", Parts: 2, Bytes: 9, ProducerBytes: 5}}
	if !reflect.DeepEqual(summary.InFlight, want) {
		t.Errorf("in flight are %+v, want %+v", summary.InFlight, want)
	}
	if len(summary.Files) != 1 || !summary.Files[0].InFlight || summary.Bytes != 9 {
		t.Errorf("files are %+v with %d bytes", summary.Files, summary.Bytes)
	}
	verified, err := stored.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(verified.Broken) != 1 || !verified.Broken[0].InFlight || verified.Broken[0].Problem == "" {
		t.Errorf("the missing file is told as %+v", verified.Broken)
	}
}
