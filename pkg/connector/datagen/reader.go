package datagen

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/operator"
)

// split is count numbers, step apart.
type split struct{ first, step, count uint64 }

// splitBytes is the size of an encoded split: a version and three numbers.
const splitBytes = 1 + 3*8

// splitVersion is the first byte of an encoded split: splits live in checkpoints.
const splitVersion = 1

func (s split) encode() []byte {
	out := make([]byte, 0, splitBytes)
	out = append(out, splitVersion)
	out = binary.LittleEndian.AppendUint64(out, s.first)
	out = binary.LittleEndian.AppendUint64(out, s.step)
	return binary.LittleEndian.AppendUint64(out, s.count)
}

func decodeSplit(data []byte) (split, error) {
	if len(data) != splitBytes || data[0] != splitVersion {
		return split{}, fmt.Errorf("split of %d bytes is not of version %d", len(data), splitVersion)
	}
	return split{
		first: binary.LittleEndian.Uint64(data[1:]),
		step:  binary.LittleEndian.Uint64(data[9:]),
		count: binary.LittleEndian.Uint64(data[17:]),
	}, nil
}

// decodePosition reads how many records of a split have been read.
func decodePosition(data []byte, s split) (uint64, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("position of %d bytes is none of this source", len(data))
	}
	at := binary.LittleEndian.Uint64(data)
	if at > s.count {
		return 0, fmt.Errorf("position %d is behind the split's end at %d", at, s.count)
	}
	return at, nil
}

// batchRecords is how many records a fetch gives: making one costs nothing,
// but between two the subtask looks for other work.
const batchRecords = 1 << 16

// lane is the place in a split. Batches read it between fetches.
type lane struct {
	split split
	// at is the number of records read, stop where the batch ends.
	at, stop uint64
}

// take returns the number of the next record.
func (l *lane) take() (uint64, bool) {
	if l.at == l.stop {
		return 0, false
	}
	n := l.split.first + l.at*l.split.step
	l.at++
	return n, true
}

// Position implements operator.Batch.
func (l *lane) Position() []byte { return binary.LittleEndian.AppendUint64(nil, l.at) }

type reader[T any] struct {
	lane  *lane
	batch operator.Batch[T]
}

// Fetch implements operator.Reader.
func (r *reader[T]) Fetch(ctx context.Context) (operator.Batch[T], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := r.lane
	if l.at == l.split.count {
		return nil, io.EOF
	}
	l.stop = min(l.at+batchRecords, l.split.count)
	return r.batch, nil
}

// Close implements operator.Reader.
func (r *reader[T]) Close() error { return nil }

// sequence is a batch of the numbers themselves.
type sequence struct{ *lane }

// Next implements operator.Batch.
func (s sequence) Next(v *uint64) (ok bool, err error) {
	*v, ok = s.take()
	return ok, nil
}

// generated is a batch of records made of the numbers.
type generated[T any] struct {
	*lane
	fn func(i uint64) T
}

// Next implements operator.Batch.
func (g generated[T]) Next(v *T) (bool, error) {
	n, ok := g.take()
	if ok {
		*v = g.fn(n)
	}
	return ok, nil
}
