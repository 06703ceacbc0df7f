package snapshot

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

func drawReport(t *rapid.T) *CheckpointReport {
	bytes := rapid.Int64Range(0, 1<<40)
	took := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1<<30).Draw(t, "us")) * time.Microsecond
	})
	r := &CheckpointReport{
		ID: ids.CheckpointID(rapid.Uint64Min(1).Draw(t, "id")), Kind: Kind(rapid.IntRange(1, 4).Draw(t, "kind")), Completed: rapid.Bool().Draw(t, "completed"),
		Failure: rapid.StringMatching(`[a-z]*`).Draw(t, "failure"), Detail: rapid.StringMatching(`[a-z]*`).Draw(t, "detail"),
		TriggeredAt: time.UnixMilli(rapid.Int64Range(1, 1<<40).Draw(t, "at")).UTC(), Duration: took.Draw(t, "duration"), Path: "/chk",
		Parallelism: rapid.SliceOfN(rapid.Int32Range(1, 5), 1, 4).Draw(t, "parallelism"),
	}
	if rapid.Bool().Draw(t, "declined") {
		r.Culprit = &ids.SubtaskID{Vertex: 1, Index: 2}
	}
	for _, n := range r.Parallelism {
		for range n {
			var s SubtaskReport
			if rapid.Bool().Draw(t, "acked") {
				s = SubtaskReport{
					Acked: true, End: took.Draw(t, "end"), StateBytes: bytes.Draw(t, "state"), UploadedBytes: bytes.Draw(t, "uploaded"), ChannelBytes: bytes.Draw(t, "channel"),
					Stats: SubtaskStats{
						Alignment: took.Draw(t, "alignment"), Sync: took.Draw(t, "sync"), Async: took.Draw(t, "async"),
						ProcessedBytes: bytes.Draw(t, "processed"), PersistedBytes: bytes.Draw(t, "persisted"), Unaligned: rapid.Bool().Draw(t, "unaligned"),
					},
				}
			}
			r.Subtasks = append(r.Subtasks, s)
		}
	}
	return r
}

func TestReportsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReport(t)
		content, err := proto.Marshal(r.ToProto())
		if err != nil {
			t.Fatal(err)
		}
		var p pb.CheckpointReport
		if err := proto.Unmarshal(content, &p); err != nil {
			t.Fatal(err)
		}
		got, err := CheckpointReportFromProto(&p)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v came back as %+v: %v", r, got, err)
		}
	})
}

func TestReportsThatNobodyWroteAreRefused(t *testing.T) {
	sound := func() *pb.CheckpointReport {
		return &pb.CheckpointReport{Id: 1, Kind: pb.CheckpointKind_CHECKPOINT_KIND_CHECKPOINT, Parallelism: []int32{2}, EndUs: []int64{1, 2}}
	}
	if _, err := CheckpointReportFromProto(sound()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*pb.CheckpointReport){
		"no ID":             func(p *pb.CheckpointReport) { p.Id = 0 },
		"no kind":           func(p *pb.CheckpointReport) { p.Kind = 0 },
		"a short column":    func(p *pb.CheckpointReport) { p.StateBytes = []int64{1} },
		"a negative value":  func(p *pb.CheckpointReport) { p.StateBytes = []int64{1, -1} },
		"no subtasks":       func(p *pb.CheckpointReport) { p.Parallelism = []int32{0} },
		"endless subtasks":  func(p *pb.CheckpointReport) { p.Parallelism = []int32{1 << 30, 1 << 30} },
		"a negative vertex": func(p *pb.CheckpointReport) { p.Culprit = &pb.SubtaskID{Vertex: -1} },
	} {
		p := sound()
		spoil(p)
		if _, err := CheckpointReportFromProto(p); err == nil {
			t.Errorf("with %s it is taken", name)
		}
	}
}

// What the subtask's clock says beyond the JobManager's does not make a time negative.
func TestStartDelayIsWhatTheSubtaskDidNotMeasure(t *testing.T) {
	r := SubtaskReport{End: 10 * time.Second, Stats: SubtaskStats{Alignment: 3 * time.Second, Sync: time.Second, Async: 4 * time.Second}}
	if d := r.StartDelay(); d != 2*time.Second {
		t.Errorf("start delay %s", d)
	}
	r.Stats.Async = time.Minute
	if d := r.StartDelay(); d != 0 {
		t.Errorf("start delay %s", d)
	}
}

// At parallelism 500 a report is small: a history of them is read at every takeover.
func TestReportsAreSmall(t *testing.T) {
	r := &CheckpointReport{ID: 1000, Kind: Checkpoint, Completed: true, Parallelism: []int32{500, 500, 500}, Path: "s3://bucket/checkpoints/chk-1000"}
	for i := range 1500 {
		r.Subtasks = append(r.Subtasks, SubtaskReport{
			Acked: true, End: time.Duration(200_000+i) * time.Microsecond, StateBytes: 100_000, UploadedBytes: 20_000,
			Stats: SubtaskStats{Alignment: 20 * time.Millisecond, Sync: time.Millisecond, Async: 100 * time.Millisecond, ProcessedBytes: 50_000},
		})
	}
	if n := proto.Size(r.ToProto()); n > 32<<10 {
		t.Errorf("%d bytes", n)
	}
}
