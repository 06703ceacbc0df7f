package exchange

import (
	"sync"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/operator"
)

// bufferBytes is the capacity of a frame's buffer: the size at which batches
// are cut, and room for the record that crosses it. A longer record grows its
// batch into memory of its own; the pool keeps the original.
const bufferBytes = operator.CutBytes + operator.CutBytes/8

// buffers recycles the memory of outgoing frames. It is shared by all tasks of
// the process, since a frame is often freed by another goroutine than the one
// that filled it. What lies unused goes with the next garbage collections.
var buffers = sync.Pool{New: func() any { return &buffer{data: make([]byte, 0, bufferBytes)} }}

type buffer struct{ data []byte }

// Free implements element.Owner.
func (b *buffer) Free() { buffers.Put(b) }

// NewBuffer gives an empty buffer for a frame and the owner that takes it back.
func NewBuffer() ([]byte, element.Owner) {
	b := buffers.Get().(*buffer)
	return b.data, b
}
