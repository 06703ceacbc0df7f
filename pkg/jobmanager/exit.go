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
//   - A panic that nobody recovered, a fatal error of the Go runtime, or any
//     other exit by itself: user code, in a goroutine that the runtime does
//     not own. The text and the stack come from the end of its stderr.
func failureOfExit(tm ids.TaskManagerID, p *pb.ExecutorExited) coordinator.Failure {
	switch {
	case p.GetError() != "":
		kind := coordinator.LostProcess
		if p.GetStartFailure() == pb.FailureKind_FAILURE_KIND_PERMANENT {
			kind = coordinator.PermanentFailure
		}
		return coordinator.Failure{Kind: kind, Message: "could not be started: " + p.GetError()}
	case p.GetSignal() != "":
		return coordinator.Failure{Kind: coordinator.LostProcess, Message: "ended by signal " + p.GetSignal()}
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

// findPanic looks for what the Go runtime writes when it gives up: the text,
// possibly of several lines, up to the first goroutine, and the stacks.
func findPanic(stderr string) (text, stack string, ok bool) {
	at := -1
	for _, mark := range []string{"panic: ", "fatal error: ", "runtime: goroutine stack exceeds"} {
		// The last one that begins a line: programs may print such words.
		for from := 0; ; {
			i := strings.Index(stderr[from:], mark)
			if i < 0 {
				break
			}
			i += from
			if (i == 0 || stderr[i-1] == '\n') && strings.Contains(stderr[i:], "\ngoroutine ") && (at < 0 || i < at) {
				at = i
				break
			}
			from = i + len(mark)
		}
	}
	if at < 0 {
		return "", "", false
	}
	rest := stderr[at:]
	text, stack, _ = strings.Cut(rest, "\ngoroutine ")
	return strings.TrimSpace(text), "goroutine " + strings.TrimSpace(stack), true
}
