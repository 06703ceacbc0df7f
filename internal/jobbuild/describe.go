package jobbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/pb"
)

// How a program learns that it is to write its graph, and where.
const (
	modeVariable       = "WEIR_MODE"
	graphMode          = "graph"
	descriptorVariable = "WEIR_GRAPH_FD"
	// graphDescriptor is the first one behind the standard three.
	graphDescriptor = "3"
)

const (
	// describeTimeout is far above what a program needs that only builds its
	// graph: one that takes longer does something else.
	describeTimeout = 30 * time.Second
	// graphBytesMax is what a JobManager accepts in one message, and hundreds of
	// times a large graph.
	graphBytesMax = 4 << 20
	// outputBytesMax bounds what is kept of the program's own words.
	outputBytesMax = 64 << 10
)

// describe runs the program in graph mode and returns its graph, validated.
func describe(ctx context.Context, request Request, program string) (*pb.JobGraph, error) {
	encoded, printed, err := runForGraph(ctx, request, program)
	if err != nil {
		return nil, err
	}
	message := &pb.JobGraph{}
	if err := proto.Unmarshal(encoded, message); err != nil {
		return nil, &Error{Message: fmt.Sprintf("%s wrote a graph that cannot be read: %v", request.Program, err), Output: printed,
			Hint: "build the program and flinkctl from the same version of Weir"}
	}
	if _, err := graph.FromProto(message); err != nil {
		return nil, &Error{Message: fmt.Sprintf("%s: %v", request.Program, err), Output: printed}
	}
	return message, nil
}

// runForGraph returns the bytes that the program wrote as its graph, and what it printed.
func runForGraph(ctx context.Context, request Request, program string) (encoded []byte, printed string, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("make a pipe for the graph: %w", err)
	}
	defer func() { err = errors.Join(err, read.Close()) }()
	limited, cancel := context.WithTimeoutCause(ctx, describeTimeout, errTooSlow)
	defer cancel()
	cmd := exec.CommandContext(limited, program, request.Args...)
	cmd.Env = append(append(os.Environ(), request.Environment...), modeVariable+"="+graphMode, descriptorVariable+"="+graphDescriptor)
	cmd.ExtraFiles = []*os.File{write}
	output := &boundedBuffer{}
	// One buffer for both: what the program prints matters only when it fails.
	cmd.Stdout, cmd.Stderr = output, output
	// What the program started and left behind must not keep the submission waiting.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, "", errors.Join(fmt.Errorf("run %s for its graph: %w", request.Program, err), write.Close())
	}
	if err := write.Close(); err != nil {
		return nil, "", fmt.Errorf("run %s for its graph: %w", request.Program, err)
	}
	// The pipe's end closes when the program ends: killing it ends the read as well.
	stop := context.AfterFunc(limited, func() { _ = read.SetReadDeadline(time.Now()) })
	encoded, readErr := io.ReadAll(io.LimitReader(read, graphBytesMax+1))
	stop()
	if len(encoded) > graphBytesMax {
		cancel()
	}
	waitErr := cmd.Wait()
	printed = output.String()
	switch {
	case ctx.Err() != nil:
		return nil, "", fmt.Errorf("run %s for its graph: %w", request.Program, context.Cause(ctx))
	case errors.Is(context.Cause(limited), errTooSlow):
		return nil, "", &Error{Message: fmt.Sprintf("%s built no graph within %v", request.Program, describeTimeout), Output: printed,
			Hint: hintMain}
	case len(encoded) > graphBytesMax:
		return nil, "", &Error{Message: fmt.Sprintf("%s wrote a graph of more than %d bytes", request.Program, graphBytesMax)}
	case waitErr != nil:
		return nil, "", refusedToDescribe(request.Program, waitErr, printed)
	case readErr != nil:
		return nil, "", fmt.Errorf("read the graph of %s: %w", request.Program, readErr)
	case len(encoded) == 0:
		return nil, "", &Error{Message: request.Program + " ended without building a graph", Output: printed, Hint: hintMain}
	}
	return encoded, printed, nil
}

var errTooSlow = errors.New("no graph in time")

const hintMain = "a job program's main function calls stream.Main"

// refusedToDescribe turns a program's failure into its one error line: what
// stream.Main says itself is one, a panic has it at its start.
func refusedToDescribe(program string, failure error, printed string) error {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return &Error{Message: fmt.Sprintf("%s builds no graph: %s", program, line), Output: printed}
		}
	}
	// Package flag prints what is wrong with the arguments, then all flags.
	for i, line := range lines {
		if i > 0 && strings.HasPrefix(line, "Usage of ") {
			return &Error{Message: fmt.Sprintf("%s refuses its arguments: %s", program, lines[i-1]), Output: strings.Join(lines[i:], "\n") + "\n"}
		}
	}
	last := strings.TrimPrefix(lines[len(lines)-1], "error: ")
	if last == "" {
		return &Error{Message: fmt.Sprintf("%s builds no graph: %v", program, failure), Hint: hintMain}
	}
	shown := printed
	if len(lines) == 1 {
		shown = "" // the message has it all
	}
	return &Error{Message: fmt.Sprintf("%s builds no graph: %s", program, last), Output: shown}
}

// boundedBuffer keeps the first bytes written to it and drops the rest. The
// exec package writes to it from one goroutine at a time.
type boundedBuffer struct{ kept bytes.Buffer }

// Write implements io.Writer and never fails, so that the program goes on.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := outputBytesMax - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// String returns what was kept.
func (b *boundedBuffer) String() string { return b.kept.String() }
