package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weirstream/weir/internal/jobbuild"
	"github.com/weirstream/weir/internal/localcluster"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/transport"
)

// exitCode is the process's, by the kind of error. Scripts rely on them.
type exitCode int

// The exit codes, explained in the package's documentation.
const (
	codeOK          exitCode = 0
	codeFailed      exitCode = 1
	codeUsage       exitCode = 2
	codeUnreachable exitCode = 3
	codeNotFound    exitCode = 4
	codeStatus      exitCode = 5
	codeProgram     exitCode = 6
	codeRefused     exitCode = 7
	codeCanceled    exitCode = 8
	codeInterrupted exitCode = 130
)

// failure is an error as it is shown.
type failure struct {
	code    exitCode
	message string
	// output is printed before the message as it is: a compiler's words, the end of a log.
	output string
	// hint says what to do; it may be empty.
	hint string
	// stack is shown with --verbose.
	stack string
	// err is what lies behind the message, shown with --verbose; it may be nil.
	err error
}

// Error returns the message.
func (f *failure) Error() string { return f.message }

// Unwrap returns what lies behind it.
func (f *failure) Unwrap() error { return f.err }

// print writes the error to w. If that fails there is nobody left to tell.
func (f *failure) print(w io.Writer, verbose bool) {
	var text strings.Builder
	if f.output != "" {
		text.WriteString(strings.TrimRight(f.output, "\n") + "\n")
	}
	fmt.Fprintf(&text, "error: %s\n", oneLine(f.message))
	if f.hint != "" {
		fmt.Fprintf(&text, "hint: %s\n", f.hint)
	}
	if verbose {
		for err := f.err; err != nil; err = errors.Unwrap(err) {
			fmt.Fprintf(&text, "trace: %T: %s\n", err, oneLine(err.Error()))
		}
		if f.stack != "" {
			text.WriteString(f.stack + "\n")
		}
	}
	_, _ = io.WriteString(w, text.String())
}

// oneLine keeps an error on its line, whatever others wrote into it.
func oneLine(text string) string {
	joined := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	// What follows a heading is not a second statement.
	return strings.ReplaceAll(joined, ":; ", ": ")
}

// fail makes the failure for an error of any layer below.
func fail(ctx context.Context, err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	f = &failure{code: codeFailed, message: err.Error(), err: err}
	var (
		program  *jobbuild.Error
		key      *config.KeyError
		ended    *localcluster.EndedError
		conflict *localcluster.ConflictError
		option   *localcluster.OptionError
		absent   *localcluster.NotFoundError
	)
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		f.code, f.message = codeInterrupted, "interrupted"
	case errors.As(err, &program):
		f.code, f.output, f.hint = codeProgram, program.Output, program.Hint
	case errors.As(err, &key):
		f.code, f.message, f.hint = codeUsage, key.Error(), "docs/CONFIG.md lists all keys"
	case errors.As(err, &ended):
		f.output = ended.Tail
	case errors.As(err, &conflict):
		f.code, f.hint = codeStatus, "stop it first with flinkctl cluster stop; its jobs go on when it is started again"
	case errors.As(err, &option):
		f.code = codeUsage
	case errors.As(err, &absent):
		f.code, f.hint = codeNotFound, "start one with flinkctl cluster start --dir "+absent.Dir
	case errors.Is(err, transport.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f.code = codeUnreachable
	case errors.Is(err, transport.ErrNotFound):
		f.code, f.hint = codeNotFound, "flinkctl list --all shows the jobs that there are"
	case errors.Is(err, transport.ErrRefused):
		f.code = codeStatus
	case errors.Is(err, transport.ErrInvalid), errors.Is(err, transport.ErrTooLarge):
		f.code = codeRefused
	}
	return f
}
