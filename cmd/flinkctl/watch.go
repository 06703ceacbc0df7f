package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

const (
	// watchInterval is how often the job is asked about: changes appear at once
	// to a person.
	watchInterval = 250 * time.Millisecond
	// recordsInterval is how often the number of records is printed where lines stay.
	recordsInterval = 5 * time.Second
	// reconnectTimeout is how long a JobManager may be away while its job is
	// watched: it resumes its jobs when it comes back.
	reconnectTimeout = 2 * time.Minute
)

// watch shows the job's progress on stderr until it ends, and returns how it did.
func (c *cli) watch(ctx context.Context, jobManager *transport.JobManager, job string) error {
	w := &watcher{cli: c, live: isTerminal(c.stderr), recordAt: time.Now()}
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		response, err := read(ctx, &pb.JobStatusRequest{JobId: job}, jobManager.JobStatus)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			status := statusOf(response)
			w.show(status)
			if status.IsTerminal() {
				return verdict(status, response.GetCause())
			}
		case w.mayReconnect(err):
		default:
			return err
		}
		select {
		case <-ctx.Done():
			w.endLine()
			return &failure{code: codeInterrupted, message: "no longer watching job " + job + ", which goes on",
				hint: "flinkctl status " + job + " shows it, flinkctl cancel " + job + " ends it"}
		case <-ticker.C:
		}
	}
}

// verdict is nil for a job that finished.
func verdict(status *cliresult.JobStatus, cause *pb.Failure) error {
	switch status.Status {
	case cliresult.Failed:
		return &failure{code: codeFailed, message: fmt.Sprintf("job %s failed: %s", status.ID, failureMessage(cause)), stack: cause.GetStack(),
			hint: "flinkctl status " + status.ID + " shows the whole cause"}
	case cliresult.Canceled:
		return &failure{code: codeCanceled, message: "job " + status.ID + " was cancelled"}
	}
	return nil
}

// watcher remembers what it has shown.
type watcher struct {
	cli *cli
	// live terminals have a last line that is written over.
	live     bool
	liveText string
	status   string
	detail   string
	events   []cliresult.Event
	recordAt time.Time
	lostAt   time.Time
}

func (w *watcher) show(s *cliresult.JobStatus) {
	if !w.lostAt.IsZero() {
		w.print("connected again")
		w.lostAt = time.Time{}
	}
	told := false
	for _, event := range newEvents(w.events, s.Events) {
		w.print(event.Time.Local().Format(time.TimeOnly) + "  " + event.Text)
		told = told || strings.HasSuffix(event.Text, "-> "+s.Status)
	}
	w.events = s.Events
	switch {
	case s.Status == w.status && s.Detail == w.detail:
	case told && s.Detail == "":
		w.status, w.detail = s.Status, s.Detail
	default:
		text := "job is " + s.Status
		if s.Detail != "" {
			text += ": " + s.Detail
		}
		w.print(text)
		w.status, w.detail = s.Status, s.Detail
	}
	w.showRecords(s)
}

// showRecords prints how many records have passed, as the last line or now and then.
func (w *watcher) showRecords(s *cliresult.JobStatus) {
	if s.Status != cliresult.Running || len(s.Vertices) == 0 {
		return
	}
	first, last := s.Vertices[0], s.Vertices[len(s.Vertices)-1]
	text := fmt.Sprintf("records: %d read by %s (%.0f/s)", first.RecordsIn, first.Name, first.RecordsInRate)
	if len(s.Vertices) > 1 {
		text += fmt.Sprintf(", %d into %s", last.RecordsIn, last.Name)
	}
	text += "; checkpoint " + showNumber(s.LastCheckpoint)
	now := time.Now()
	switch {
	case w.live:
		w.liveText = text
		_, _ = fmt.Fprintf(w.cli.stderr, "\r\x1b[K%s", text)
	case now.Sub(w.recordAt) >= recordsInterval:
		w.recordAt = now
		w.print(text)
	}
}

func (w *watcher) print(line string) {
	w.endLine()
	w.cli.progress(line)
}

// endLine takes the live line away, so that the next one has a line to itself.
func (w *watcher) endLine() {
	if w.liveText != "" {
		_, _ = io.WriteString(w.cli.stderr, "\r\x1b[K")
		w.liveText = ""
	}
}

// mayReconnect reports whether to go on after a failed call.
func (w *watcher) mayReconnect(err error) bool {
	if !errors.Is(err, transport.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	now := time.Now()
	if w.lostAt.IsZero() {
		w.print("the JobManager does not answer, trying again: " + oneLine(err.Error()))
		w.lostAt = now
	}
	return now.Sub(w.lostAt) < reconnectTimeout
}

// newEvents are those behind the last one that was shown. When that is no
// longer remembered all are new.
func newEvents(shown, all []cliresult.Event) []cliresult.Event {
	if len(shown) == 0 {
		return all
	}
	last := shown[len(shown)-1]
	for i, event := range slices.Backward(all) {
		if event == last {
			return all[i+1:]
		}
	}
	return all
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
