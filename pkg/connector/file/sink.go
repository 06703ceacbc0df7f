package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/pkg/operator"
)

// SinkOption changes how a sink writes records of type T.
type SinkOption[T any] func(*sink[T])

// WithEncoding writes lines made by encode, which appends the record without
// an end of line to dst, in files with the extension (".csv"), instead of JSON
// in ".jsonl". The function is shared by all subtasks.
func WithEncoding[T any](extension string, encode func(dst []byte, v *T) ([]byte, error)) SinkOption[T] {
	return func(s *sink[T]) { s.extension, s.encode = extension, encode }
}

// ExactlyOnce writes each record as one line of a file in dir, exactly once:
// the lines of a checkpoint become visible when it is published. dir is made
// if it is missing, and is the same directory on all hosts. Without options a
// record is written as JSON, by encoding/json.
func ExactlyOnce[T any](dir string, options ...SinkOption[T]) operator.TwoPhase[T] {
	s := &sink[T]{dir: dir, extension: ".jsonl"}
	for _, o := range options {
		o(s)
	}
	return s
}

type sink[T any] struct {
	dir       string
	extension string
	encode    func(dst []byte, v *T) ([]byte, error) // nil: JSON
}

// Validate implements operator.Validator.
func (s *sink[T]) Validate() error {
	if s.dir == "" {
		return errors.New("file.ExactlyOnce has an empty path: name the output directory")
	}
	if err := validateExtension(s.extension); err != nil {
		return fmt.Errorf("file.ExactlyOnce to %s: %w", s.dir, err)
	}
	return nil
}

// Describe implements operator.TwoPhase.
func (s *sink[T]) Describe() operator.Description {
	return operator.Description{Options: map[string]string{
		"connector": "file.ExactlyOnce", "path": s.dir, "extension": s.extension,
	}}
}

// CommitsAreRevocable implements operator.Revocable: names carry job, operator
// and checkpoint.
func (s *sink[T]) CommitsAreRevocable() bool { return true }

// OpenWriter implements operator.TwoPhase.
func (s *sink[T]) OpenWriter(ctx *operator.Context) (operator.TwoPhaseWriter[T], error) {
	if err := makeDir(s.dir); err != nil {
		return nil, err
	}
	w := &writer[T]{
		dir: s.dir, extension: s.extension, encode: s.encode,
		name: writerName{job: ctx.Job, operator: ctx.Operator, attempt: ctx.Attempt, subtask: ctx.Index},
	}
	if w.encode == nil {
		w.encode = jsonEncoder[T]()
	}
	return w, nil
}

// OpenCommitter implements operator.TwoPhase.
func (s *sink[T]) OpenCommitter(ctx *operator.Context) (operator.Committer, error) {
	if err := makeDir(s.dir); err != nil {
		return nil, err
	}
	return &committer{dir: s.dir, job: ctx.Job, operator: ctx.Operator, subtask: ctx.Index}, nil
}

// jsonEncoder makes the default encoding. It has its own buffer: one for each writer.
func jsonEncoder[T any]() func(dst []byte, v *T) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // the output is not put into a page
	return func(dst []byte, v *T) ([]byte, error) {
		buf.Reset()
		if err := enc.Encode(v); err != nil {
			return dst, err
		}
		return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...), nil
	}
}

// makeDir makes the output directory and checks that files can be made in it,
// before there is anything to write.
func makeDir(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = checkWritable(dir)
	}
	return unwritable(dir, err)
}

// unwritable says which directory cannot be written and where, and whether a
// restart might help.
func unwritable(dir string, err error) error {
	if err == nil {
		return nil
	}
	var reason *fs.PathError
	if errors.As(err, &reason) {
		err = reason.Err
	}
	wrapped := fmt.Errorf("output directory %s cannot be written on host %s: %w", absolute(dir), host(), err)
	if isHopeless(err) {
		return operator.Permanent(wrapped)
	}
	return wrapped
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// inDir is the path of a name in a directory for messages.
func inDir(dir, name string) string { return absolute(filepath.Join(dir, name)) }
