package checkpointstore

import (
	"errors"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

func testReport(id ids.CheckpointID) *snapshot.CheckpointReport {
	return &snapshot.CheckpointReport{
		ID: id, Kind: snapshot.Checkpoint, Failure: "declined", Detail: "count (2/2): disk full", Culprit: &ids.SubtaskID{Vertex: 1, Index: 1},
		TriggeredAt: time.UnixMilli(1_700_000_000_000).UTC(), Duration: 1500 * time.Microsecond, Path: "/chk-7", Parallelism: []int32{1, 2},
		Subtasks: []snapshot.SubtaskReport{
			{Acked: true, End: 3 * time.Millisecond, StateBytes: 10, UploadedBytes: 4},
			{Acked: true, End: 2 * time.Millisecond, StateBytes: 30, UploadedBytes: 30, ChannelBytes: 20, Stats: snapshot.SubtaskStats{
				Alignment: time.Microsecond, Sync: 2 * time.Microsecond, Async: 3 * time.Microsecond, ProcessedBytes: 5, PersistedBytes: 6, Unaligned: true,
			}},
			{},
		},
	}
}

func putReport(t *testing.T, c *ClusterStore, job ids.JobID, id ids.CheckpointID) {
	t.Helper()
	content, err := EncodeReport(testReport(id))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeated one counts as written
		if err := c.PutReport(t.Context(), job, id, content); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReportGolden(t *testing.T) {
	content, err := EncodeReport(testReport(7))
	if err != nil {
		t.Fatal(err)
	}
	report, err := DecodeReport(golden(t, "report-1.hex", content))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, report, testReport(7))
	content[len(content)/2] ^= 1
	if _, err := DecodeReport(content); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged report: %v", err)
	}
}

// The history goes with its job, and stays while the job does.
func TestHistoryGoesWithItsJob(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		if err := c.PutJob(t.Context(), jobA, []byte("job")); err != nil {
			t.Fatal(err)
		}
		if result := c.CreateRecord(t.Context(), testRecord()); result.Outcome != Swapped {
			t.Fatal(result.Err)
		}
		for _, id := range []ids.CheckpointID{9, 10, 11} {
			putReport(t, c, jobA, id)
		}
		putReport(t, c, jobB, 12) // of a job that is gone
		if deleted, err := c.Sweep(t.Context(), nil); err != nil || deleted != 1 {
			t.Errorf("deleted %d, error %v, want 1", deleted, err)
		}
		if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 1 {
			t.Errorf("jobs %v, error %v", jobs, err)
		}
		found, err := c.Reports(t.Context(), jobA)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, found, []ids.CheckpointID{9, 10, 11}) // by number, not by name
		report, err := c.ReadReport(t.Context(), jobA, 10)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, report, testReport(10))
		for range 2 {
			if err := c.DeleteReport(t.Context(), jobA, 9); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.ReadReport(t.Context(), jobA, 9); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("deleted report: %v", err)
		}
		if err := c.DeleteJob(t.Context(), jobA); err != nil {
			t.Fatal(err)
		}
		mustHave(t, open, root)
	})
}

func TestReportOfAnotherCheckpointIsCorrupt(t *testing.T) {
	eachStore(t, func(t *testing.T, open Opener, root string) {
		store, err := open(root)
		if err != nil {
			t.Fatal(err)
		}
		c := NewClusterStore(store)
		content, err := EncodeReport(testReport(7))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.PutReport(t.Context(), jobA, 8, content); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadReport(t.Context(), jobA, 8); !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
}
