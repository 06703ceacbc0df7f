package jobmanager

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// failureOfExit says whose fault the end of an executor's process was.
//
//   - It could not be started: the TaskManager says whether that may pass.
//   - A signal: something outside ended it. A lost process.
//   - An exit code with which executors say why: the TaskManager knows them.
//   - A panic that nobody recovered, a fatal error of the Go runtime, or any
//     other exit by itself: user code, in a goroutine that the runtime does
//     not own. The text and the stack come from the end of its stderr.
func failureOfExit(tm ids.TaskManagerID, p *pb.ExecutorExited) coordinator.Failure {
	switch {
	case p.GetError() != "":
		return coordinator.Failure{Kind: kindOfExit(p), Message: "could not be started: " + p.GetError()}
	case p.GetSignal() != "":
		return coordinator.Failure{Kind: coordinator.LostProcess, Message: "ended by signal " + p.GetSignal()}
	case p.GetKind() != pb.FailureKind_FAILURE_KIND_UNSPECIFIED:
		return coordinator.Failure{Kind: kindOfExit(p), Message: lastLine(p.GetStderrTail(), p.GetExitCode()), Stack: p.GetStderrTail()}
	}
	if text, stack, ok := findPanic(p.GetStderrTail()); ok {
		return coordinator.Failure{Kind: coordinator.UserFailure, Message: text, Stack: stack}
	}
	return coordinator.Failure{
		Kind:    coordinator.UserFailure,
		Message: fmt.Sprintf("executor on TaskManager %s exited by itself with code %d", tm, p.GetExitCode()),
		Stack:   p.GetStderrTail(),
	}
}

// kindOfExit is what the TaskManager knows of whose fault it was.
func kindOfExit(p *pb.ExecutorExited) coordinator.FailureKind {
	switch p.GetKind() {
	case pb.FailureKind_FAILURE_KIND_PERMANENT:
		return coordinator.PermanentFailure
	case pb.FailureKind_FAILURE_KIND_USER:
		return coordinator.UserFailure
	case pb.FailureKind_FAILURE_KIND_LOST, pb.FailureKind_FAILURE_KIND_CORRUPT, pb.FailureKind_FAILURE_KIND_UNSPECIFIED:
	}
	return coordinator.LostProcess
}

// lastLine is what an executor said last, which is why it ended.
func lastLine(stderr string, code int32) string {
	stderr = strings.TrimSpace(stderr)
	if line := stderr[strings.LastIndexByte(stderr, '\n')+1:]; line != "" {
		return line
	}
	return fmt.Sprintf("exited with code %d", code)
}

// panicMarks begin the lines with which the Go runtime gives up.
var panicMarks = []string{"panic: ", "fatal error: "}

// findPanic looks for the last place where the Go runtime gave up: the text,
// possibly of several lines, up to the first goroutine, and the stacks.
func findPanic(stderr string) (text, stack string, ok bool) {
	for end := len(stderr); end > 0; {
		start := strings.LastIndexByte(stderr[:end], '\n') + 1
		for _, mark := range panicMarks {
			if !strings.HasPrefix(stderr[start:], mark) {
				continue
			}
			// A program may print such a line: only the runtime adds stacks.
			if text, stack, ok = strings.Cut(stderr[start:], "\ngoroutine "); ok {
				return strings.TrimSpace(text), "goroutine " + strings.TrimSpace(stack), true
			}
		}
		end = start - 1
	}
	return "", "", false
}
