package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirstream/weir/pkg/operator"
)

// reader reads a split, and is each of its own batches: Fetch and Next are
// never called at the same time.
type reader[T any] struct {
	lines         *lineReader
	file          *os.File
	split         split
	context       *operator.Context
	decoder       decoder[T]
	skipMalformed bool
	skipped       int64
}

// Fetch implements operator.Reader.
func (r *reader[T]) Fetch(ctx context.Context) (operator.Batch[T], error) {
	switch err := r.lines.fill(ctx); {
	case err == nil:
		return r, nil
	case errors.Is(err, io.EOF), ctx.Err() != nil:
		return nil, err
	default:
		return nil, r.inFile(err)
	}
}

func (r *reader[T]) inFile(err error) error {
	return fmt.Errorf("file %s: %w", absolute(r.split.path), err)
}

// recordShownMax is how much of a malformed record a message shows.
const recordShownMax = 80

// Next implements operator.Batch.
func (r *reader[T]) Next(v *T) (bool, error) {
	for {
		line, offset, ok := r.lines.next()
		if !ok {
			return false, nil
		}
		if len(line) > r.lines.lineBytesMax {
			return false, r.inFile(r.lines.tooLong(offset))
		}
		if r.decoder.skips(line) {
			continue
		}
		err := r.decoder.decode(line, v)
		if err == nil {
			return true, nil
		}
		shown, more := line, ""
		if len(shown) > recordShownMax {
			shown, more = shown[:recordShownMax], "…"
		}
		err = fmt.Errorf("file %s, byte %d: malformed record %q%s: %w", absolute(r.split.path), offset, shown, more, err)
		if !r.skipMalformed {
			return false, operator.Permanent(err)
		}
		if r.skipped++; r.skipped == 1 {
			if err := r.tell("skipped: %v", err); err != nil {
				return false, err
			}
		}
	}
}

// Position implements operator.Batch.
func (r *reader[T]) Position() []byte { return encodePosition(r.lines.offset()) }

// Close implements operator.Reader.
func (r *reader[T]) Close() error {
	var err error
	if r.skipped > 1 {
		err = r.tell("skipped %d malformed records of %s between bytes %d and %d",
			r.skipped, absolute(r.split.path), r.split.start, r.split.end)
	}
	return errors.Join(err, r.file.Close())
}

// tell writes a line for the job's users.
func (r *reader[T]) tell(format string, args ...any) error {
	if r.context == nil || r.context.Output == nil {
		return nil
	}
	_, err := fmt.Fprintf(r.context.Output, "%s[%d]> %s\n", r.context.Operator, r.context.Index, fmt.Sprintf(format, args...))
	return err
}
