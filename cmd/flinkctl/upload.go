package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirstream/weir/internal/jobbuild"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// upload sends the job's binary unless the cluster has it.
func (c *cli) upload(ctx context.Context, jobManager *transport.JobManager, job *jobbuild.Job) (err error) {
	has, err := read(ctx, &pb.HasArtifactRequest{Sha256: job.SHA256}, jobManager.HasArtifact)
	if err != nil {
		return err
	}
	if has.GetExists() {
		c.progress("the cluster has this binary already")
		return nil
	}
	file, err := os.Open(job.Binary)
	if err != nil {
		return fmt.Errorf("open binary: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	c.progress(fmt.Sprintf("uploading %s", showBytes(job.Size)))
	return jobManager.UploadArtifact(ctx, job.SHA256, job.Size, &reportingReader{
		source: file, size: job.Size, report: c.progress, due: time.Now().Add(uploadReportInterval),
	})
}

// uploadReportInterval is how often a slow upload says how far it is.
const uploadReportInterval = 2 * time.Second

// reportingReader reports how much of it was read.
type reportingReader struct {
	source     io.Reader
	read, size int64
	report     func(string)
	due        time.Time
}

// Read implements io.Reader.
func (r *reportingReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	r.read += int64(n)
	if now := time.Now(); now.After(r.due) {
		r.due = now.Add(uploadReportInterval)
		r.report(fmt.Sprintf("uploaded %s of %s (%d%%)", showBytes(r.read), showBytes(r.size), 100*r.read/max(1, r.size)))
	}
	return n, err
}
