package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/operator"
)

// SourceOption changes how a source reads.
type SourceOption func(*sourceOptions)

type sourceOptions struct {
	splitBytes    int64 // 0: by the size of the input
	lineBytesMax  int
	skipMalformed bool
}

// lineBytesMaxDefault bounds the memory that one line can take. Longer ones
// are usually a file that is not made of lines.
const lineBytesMaxDefault = 16 << 20

// WithSplitBytes cuts files into splits of n bytes. Without it the size
// depends on the input: small inputs are cut so that many subtasks can share them.
func WithSplitBytes(n int64) SourceOption { return func(o *sourceOptions) { o.splitBytes = n } }

// WithLineBytesMax refuses lines longer than n bytes instead of 16 MiB.
func WithLineBytesMax(n int) SourceOption { return func(o *sourceOptions) { o.lineBytesMax = n } }

// SkipMalformed leaves out records that cannot be decoded, instead of failing
// the job. The first one of each split and their number are written to the
// job's output, which flinkctl logs shows.
func SkipMalformed() SourceOption { return func(o *sourceOptions) { o.skipMalformed = true } }

// JSONLines reads records of type T, one JSON value on each line, by
// encoding/json. Blank lines are skipped. path is a file, a directory (its
// files, without hidden ones and subdirectories) or a pattern as in a shell
// (see filepath.Match); it is read where the source runs.
func JSONLines[T any](path string, options ...SourceOption) operator.Source[T] {
	return newSource(path, "file.JSONLines", options, decoder[T]{
		skips: func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 },
		decode: func(line []byte, v *T) error {
			// A field that this record does not have would keep the value of the one before.
			*v = *new(T)
			return json.Unmarshal(line, v)
		},
	})
}

// Lines reads text: each line, without its end, is a record. Empty lines are
// records too. path is as for JSONLines.
func Lines(path string, options ...SourceOption) operator.Source[string] {
	return newSource(path, "file.Lines", options, decoder[string]{
		skips: func([]byte) bool { return false },
		decode: func(line []byte, v *string) error {
			*v = string(line)
			return nil
		},
	})
}

// decoder makes records of lines.
type decoder[T any] struct {
	skips  func(line []byte) bool
	decode func(line []byte, v *T) error
}

type source[T any] struct {
	path, name string
	options    sourceOptions
	decoder    decoder[T]
}

func newSource[T any](path, name string, options []SourceOption, d decoder[T]) *source[T] {
	s := &source[T]{path: path, name: name, decoder: d, options: sourceOptions{lineBytesMax: lineBytesMaxDefault}}
	for _, o := range options {
		o(&s.options)
	}
	return s
}

// Validate implements operator.Validator.
func (s *source[T]) Validate() error {
	switch {
	case s.path == "":
		return fmt.Errorf("%s has an empty path: name a file, a directory or a pattern", s.name)
	case s.options.splitBytes < 0:
		return fmt.Errorf("%s of %s: split size is %d bytes: set 1 or more, or leave it out", s.name, s.path, s.options.splitBytes)
	case s.options.lineBytesMax < 1:
		return fmt.Errorf("%s of %s: line limit is %d bytes: set 1 or more, or leave it out", s.name, s.path, s.options.lineBytesMax)
	}
	if _, err := filepath.Match(s.path, ""); err != nil {
		return fmt.Errorf("%s: path %q is not a valid pattern: %w", s.name, s.path, err)
	}
	return nil
}

// Describe implements operator.Source.
func (s *source[T]) Describe() operator.Description {
	o := map[string]string{
		"connector":      s.name,
		"path":           s.path,
		"line-bytes-max": strconv.Itoa(s.options.lineBytesMax),
		"skip-malformed": strconv.FormatBool(s.options.skipMalformed),
	}
	if s.options.splitBytes > 0 {
		o["split-bytes"] = strconv.FormatInt(s.options.splitBytes, 10)
	}
	return operator.Description{Bounded: true, Options: o}
}

// ListSplits implements operator.Source.
func (s *source[T]) ListSplits(ctx context.Context, _ operator.SourceContext) ([][]byte, bool, error) {
	files, err := s.files()
	if err != nil {
		return nil, false, err
	}
	sizes := make([]int64, len(files))
	var total int64
	for i, path := range files {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, false, unreadable(path, err)
		}
		sizes[i] = info.Size()
		total += info.Size()
	}
	size := s.options.splitBytes
	if size == 0 {
		size = defaultSplitBytes(total)
	}
	var splits [][]byte
	for i, path := range files {
		splits = cut(splits, path, sizes[i], size)
	}
	return splits, true, nil
}

// files lists the input's files in order.
func (s *source[T]) files() ([]string, error) {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && info.IsDir():
		return filesOf(s.path)
	case err == nil:
		return []string{s.path}, nil
	case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(s.path, `*?[\`):
		return nil, unreadable(s.path, err)
	}
	matches, err := filepath.Glob(s.path)
	if err != nil {
		return nil, operator.Permanentf("input pattern %q: %w", s.path, err)
	}
	matches = slices.DeleteFunc(matches, func(path string) bool {
		if isHidden(path) && !isHidden(s.path) { // as in a shell
			return true
		}
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	})
	if len(matches) == 0 {
		return nil, operator.Permanentf("no file matches the input pattern %s on host %s", absolute(s.path), host())
	}
	slices.Sort(matches)
	return matches, nil
}

func filesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, unreadable(dir, err)
	}
	var files []string
	for _, e := range entries {
		if e.IsDir() || isHidden(e.Name()) {
			continue
		}
		files = append(files, filepath.Join(dir, e.Name()))
	}
	if len(files) == 0 {
		return nil, operator.Permanentf("input directory %s has no files on host %s", absolute(dir), host())
	}
	return files, nil
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// OpenReader implements operator.Source.
func (s *source[T]) OpenReader(_ context.Context, sc operator.SourceContext, data, position []byte) (operator.Reader[T], error) {
	sp, err := decodeSplit(data)
	if err != nil {
		return nil, operator.Permanentf("source %s: %w", sc.Operator, err)
	}
	f, err := os.Open(sp.path)
	if err != nil {
		return nil, unreadable(sp.path, err)
	}
	lines := newLineReader(f, sp, s.options.lineBytesMax)
	if position != nil {
		offset, err := decodePosition(position)
		if err == nil {
			err = resume(f, lines, offset)
		}
		if err != nil {
			_ = f.Close() // only read; the first error is the one to tell
			return nil, operator.Permanentf("source %s: file %s: %w", sc.Operator, absolute(sp.path), err)
		}
	}
	return &reader[T]{lines: lines, file: f, split: sp, context: sc.Context, decoder: s.decoder, skipMalformed: s.options.skipMalformed}, nil
}

// resume starts a reader at an offset from a checkpoint.
func resume(f *os.File, lines *lineReader, offset int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset > info.Size() {
		return fmt.Errorf("the checkpoint's position is byte %d, but the file has only %d bytes: it was changed; put the original back", offset, info.Size())
	}
	lines.startAt(offset)
	return nil
}

// unreadable says which input cannot be read and where, and whether waiting helps.
func unreadable(path string, err error) error {
	var reason *fs.PathError
	if errors.As(err, &reason) {
		err = reason.Err
	}
	err = fmt.Errorf("input %s cannot be read on host %s, where the source runs: %w", absolute(path), host(), err)
	if errors.Is(err, fs.ErrNotExist) || isHopeless(err) {
		return operator.Permanent(err)
	}
	return err
}

// absolute is the path for messages: a relative one says little about where
// another process looked.
func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "(unknown)"
	}
	return name
}
