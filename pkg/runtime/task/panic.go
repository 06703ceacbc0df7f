package task

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// stackBytesMax bounds the stack of a panic that travels to the JobManager:
// the frames at its top tell where it was.
const stackBytesMax = 16 << 10

// panicError is a panic of user code as an error.
type panicError struct {
	value any
	stack string
}

// Error says what the panic said.
func (p *panicError) Error() string {
	if p.value == errGoexit {
		return errGoexit.Error()
	}
	return fmt.Sprintf("panic: %v", p.value)
}

// Unwrap gives an error that was the value of the panic.
func (p *panicError) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// errGoexit is the failure of a task whose code ended its goroutine, as
// testing.T.FailNow does. That cannot be caught, only noticed.
var errGoexit = errors.New("user code called runtime.Goexit")

// protect runs f and returns its panic, or nil.
func protect(f func()) (p *panicError) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			if len(stack) > stackBytesMax {
				stack = stack[:stackBytesMax]
			}
			p = &panicError{value: v, stack: string(stack)}
		}
	}()
	f()
	return nil
}
