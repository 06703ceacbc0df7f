package stream

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/pb"
)

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &progress{name: "flights", to: &out}
	p.show(&pb.JobStatusResponse{Status: "CREATED", Detail: "waiting for 6 slots, 4 free"})
	for i := range 7 {
		p.show(&pb.JobStatusResponse{
			Status: "RUNNING", LastCheckpoint: uint64(i),
			Vertices: []*pb.VertexStatus{{Name: "numbers -> map-1", RecordsIn: int64(100 * i)}},
		})
	}
	p.show(&pb.JobStatusResponse{Status: "RESTARTING", Restarts: 1, Cause: &pb.Failure{Message: "operator m: broken"}})
	want := `flights: CREATED, waiting for 6 slots, 4 free
flights: RUNNING
flights: RUNNING, checkpoint 5, 500 records read by numbers -> map-1
flights: RESTARTING, restarts: 1, because of: operator m: broken
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", &out, want)
	}
}
