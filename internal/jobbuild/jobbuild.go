package jobbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/pb"
)

// Request says what to make.
type Request struct {
	// Program is a Go package path, a directory of one, a .go file or a binary.
	Program string
	// Args are the program's arguments. They may shape its graph.
	Args []string
	// Environment is set for the program in addition to this process's own, as KEY=VALUE.
	Environment []string
	// Platform is what the binary has to run on.
	Platform Platform
	// Dir receives what is built; the caller removes it.
	Dir string
	// Progress is told what takes time, in one line each. It may be nil.
	Progress func(line string)
}

// Job is what to submit.
type Job struct {
	// Binary is the file to upload. A prebuilt binary is itself, not a copy.
	Binary string
	// SHA256 is the content's hash in hexadecimal digits, Size its length in bytes.
	SHA256 string
	Size   int64
	Graph  *pb.JobGraph
}

// Error says what is wrong with a program.
type Error struct {
	// Message is one line.
	Message string
	// Output is what the compiler or the program printed, to be shown as it is; it may be empty.
	Output string
	// Hint says what to do about it; it may be empty.
	Hint string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Make builds or inspects the program and asks it for its graph.
func Make(ctx context.Context, request Request) (*Job, error) {
	if request.Progress == nil {
		request.Progress = func(string) {}
	}
	kind, err := kindOf(request.Program)
	if err != nil {
		return nil, err
	}
	var binary, local string
	switch kind {
	case prebuilt:
		binary, local, err = usePrebuilt(request)
	case goPackage:
		binary, local, err = compile(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	graph, err := describe(ctx, request, local)
	if err != nil {
		return nil, err
	}
	job := &Job{Binary: binary, Graph: graph}
	job.SHA256, job.Size, err = hashFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
	}
	return job, nil
}

// programKind tells what a program is given as.
type programKind uint8

const (
	prebuilt programKind = iota + 1
	goPackage
)

// kindOf takes every existing file for a binary, except Go source. What does
// not exist as a file may still be an import path, which Go resolves.
func kindOf(program string) (programKind, error) {
	info, err := os.Stat(program)
	switch {
	case err == nil && info.IsDir():
		return goPackage, nil
	case err == nil && filepath.Ext(program) == ".go":
		return goPackage, nil
	case err == nil:
		return prebuilt, nil
	case errors.Is(err, os.ErrNotExist) && !isFilePath(program):
		return goPackage, nil
	case errors.Is(err, os.ErrNotExist):
		return 0, &Error{Message: fmt.Sprintf("there is no program %s", program),
			Hint: "give the directory of a Go package, as in ./examples/flights, or a binary"}
	}
	return 0, fmt.Errorf("look for program: %w", err)
}

// isFilePath reports whether Go would take the program for a path in the file
// system, not for an import path.
func isFilePath(program string) bool {
	return filepath.IsAbs(program) || program == "." || program == ".." ||
		len(program) > 1 && program[:2] == "./" || len(program) > 2 && program[:3] == "../"
}

func hashFile(name string) (sum string, size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	size, err = io.Copy(hash, file)
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}
