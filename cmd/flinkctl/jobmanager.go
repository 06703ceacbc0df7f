package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// readTimeout bounds calls that only read, so that a JobManager that hangs is
// told from one that works. Savepoints and cancellations take as long as they take.
const readTimeout = 20 * time.Second

// withJobManager runs f with a client of the JobManager.
func (c *cli) withJobManager(ctx context.Context, f func(context.Context, *transport.JobManager) error) error {
	jobManager, err := transport.DialJobManager(c.jobManager, transport.DialOptions{})
	if err != nil {
		return &failure{code: codeUsage, message: "--jobmanager: " + err.Error(), err: err,
			hint: "give it as HOST:PORT, here or in $" + addressVariable}
	}
	if err = f(ctx, jobManager); err != nil {
		// A connection that cannot be closed adds nothing to what went wrong.
		_ = jobManager.Close()
		return c.explain(fail(ctx, err))
	}
	if err := jobManager.Close(); err != nil {
		return fail(ctx, err)
	}
	return nil
}

// explain adds how to name another JobManager to an error that none answers.
func (c *cli) explain(f *failure) *failure {
	if f.code != codeUnreachable {
		return f
	}
	f.hint = "start it, or say where it is with --jobmanager or $" + addressVariable
	if errors.Is(f.err, context.DeadlineExceeded) {
		f.message = fmt.Sprintf("the JobManager at %s does not answer", c.jobManager)
	}
	return f
}

// read calls a method that only reads.
func read[Request, Response any](ctx context.Context, request *Request,
	call func(context.Context, *Request) (*Response, error)) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return call(ctx, request)
}

// ofJob names the job in a refusal, which only says what is in the way.
func ofJob(job string, err error) error {
	if errors.Is(err, transport.ErrRefused) {
		return fmt.Errorf("job %s: %w", job, err)
	}
	return err
}

// oneJob checks the arguments of verbs that take a job and nothing else.
func oneJob(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("%s needs a job ID", cmd.Name())
	case 1:
		return nil
	}
	return fmt.Errorf("%s takes one job ID, not also %q", cmd.Name(), args[1])
}

// resolveJob completes a job ID from its first digits.
func resolveJob(ctx context.Context, jobManager *transport.JobManager, given string) (string, error) {
	prefix := strings.ToLower(strings.TrimSpace(given))
	if _, err := ids.ParseJobID(prefix); err == nil {
		return prefix, nil
	}
	if prefix == "" || strings.Trim(prefix, "0123456789abcdef") != "" || len(prefix) > 32 {
		return "", &failure{code: codeUsage, message: fmt.Sprintf("%q is not a job ID", given),
			hint: "a job ID has 32 hexadecimal digits, its first ones are enough; flinkctl list --all shows them"}
	}
	response, err := read(ctx, &pb.ListJobsRequest{All: true}, jobManager.ListJobs)
	if err != nil {
		return "", err
	}
	var matches []string
	for _, job := range response.GetJobs() {
		if strings.HasPrefix(job.GetId(), prefix) {
			matches = append(matches, job.GetId())
		}
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return "", transport.Errorf(transport.ErrNotFound, "there is no job %s", given)
	}
	return "", &failure{code: codeUsage, message: fmt.Sprintf("%d jobs have an ID that starts with %s: %s", len(matches), given, strings.Join(matches, ", ")),
		hint: "give more digits"}
}
