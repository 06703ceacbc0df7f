package stream

import (
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/pb"
)

// countersEvery is how many reports come before one is printed although only
// its numbers changed. Reports come every second.
const countersEvery = 5

// progress prints what a job does in direct mode, one line for each piece of news.
type progress struct {
	name string
	to   io.Writer
	news string // last printed
	skip int    // reports since then
}

// show prints a report unless it says nothing new.
func (p *progress) show(s *pb.JobStatusResponse) {
	news := s.GetStatus()
	if s.GetDetail() != "" {
		news += ", " + s.GetDetail()
	}
	if s.GetRestarts() > 0 {
		news += fmt.Sprintf(", restarts: %d", s.GetRestarts())
	}
	if s.GetStatus() == "RESTARTING" && s.GetCause() != nil {
		news += ", because of: " + s.GetCause().GetMessage()
	}
	if p.skip++; news == p.news && p.skip < countersEvery {
		return
	}
	p.news, p.skip = news, 0
	line := news
	if s.GetLastCheckpoint() > 0 {
		line += fmt.Sprintf(", checkpoint %d", s.GetLastCheckpoint())
	}
	// The first vertex is a source. What it read counts as in; it has nothing out if it is all there is.
	if v := s.GetVertices(); len(v) > 0 && v[0].GetRecordsIn() > 0 {
		line += fmt.Sprintf(", %d records read by %s", v[0].GetRecordsIn(), v[0].GetName())
	}
	// Progress is a courtesy: a stderr that is closed does not fail the job.
	_, _ = fmt.Fprintf(p.to, "%s: %s\n", p.name, line)
}
