package operator

import (
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
)

// Grouper tells whose the encoded records of a hash-partitioned edge are: those
// that were in flight when the parallelism changed.
type Grouper interface {
	// Next gives the size of the first record in data, in bytes, and the group
	// of its key.
	Next(data []byte) (size int, group keygroup.Group, err error)
}

// NewGrouper makes the Grouper of an edge that NewHashOutput writes.
func NewGrouper[T any, K comparable](c codec.Codec[T], key func(T) K, enc *keygroup.Encoding[K], maxParallelism int) Grouper {
	return &grouper[T, K]{codec: c, key: key, enc: enc, maxParallelism: maxParallelism}
}

type grouper[T any, K comparable] struct {
	codec          codec.Codec[T]
	key            func(T) K
	enc            *keygroup.Encoding[K]
	maxParallelism int
	v              T
	k              K
}

// Next implements Grouper.
func (g *grouper[T, K]) Next(data []byte) (size int, group keygroup.Group, err error) {
	defer codec.Recover(&err)
	if size, err = g.codec.Decode(data, &g.v); err != nil {
		return 0, 0, err
	}
	g.k = g.key(g.v)
	return size, keygroup.OfHash(g.enc.Hash(&g.k), g.maxParallelism), nil
}

// WholeRecords is how many bytes of data are whole records, from its beginning.
// If that is not all, the error says what the next one is, which may be a record
// that goes on behind data.
func WholeRecords(g Grouper, data []byte) (int, error) {
	for at := 0; at < len(data); {
		size, _, err := g.Next(data[at:])
		if err == nil && (size <= 0 || size > len(data)-at) {
			err = fmt.Errorf("it has %d bytes", size)
		}
		if err != nil {
			return at, fmt.Errorf("record at byte %d of %d: %w", at, len(data), err)
		}
		at += size
	}
	return len(data), nil
}

// OwnedRecords copies the records whose keys are in groups, and counts them.
func OwnedRecords(g Grouper, data []byte, groups keygroup.Range) (owned []byte, records int, err error) {
	for at := 0; at < len(data); {
		size, group, err := g.Next(data[at:])
		if err != nil {
			return nil, 0, fmt.Errorf("record at byte %d of %d: %w", at, len(data), err)
		}
		if size <= 0 {
			return nil, 0, fmt.Errorf("record at byte %d of %d has %d bytes", at, len(data), size)
		}
		if groups.Contains(group) {
			owned = append(owned, data[at:at+size]...)
			records++
		}
		at += size
	}
	return owned, records, nil
}
