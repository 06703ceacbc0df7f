package transport

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
)

// The field numbers of weir.v1.Frame.
const (
	fieldChannel      = 1
	fieldKind         = 2
	fieldCount        = 3
	fieldData         = 4
	fieldCheckpoint   = 5
	fieldBarrierFlags = 6
	fieldSavepointDir = 7
	fieldWatermark    = 8
	fieldIdle         = 9
	fieldBase         = 10
	fieldAlignment    = 11
	fieldTimeout      = 12
)

// The bits of barrier_flags.
const (
	flagSavepoint = 1 << iota
	flagStop
	flagDrain
)

// frameCodec is gRPC's protobuf codec, except that it writes and reads *Frame
// by hand. It has the same name, so that a peer with generated code does not
// see a difference.
type frameCodec struct{}

// Name implements encoding.CodecV2.
func (frameCodec) Name() string { return protocodec.Name }

// Marshal implements encoding.CodecV2. It takes over the frame's memory.
func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return encodeFrame(f), nil
	}
	return encoding.GetCodecV2(protocodec.Name).Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*Frame); ok {
		return decodeFrame(data, f)
	}
	return encoding.GetCodecV2(protocodec.Name).Unmarshal(data, v)
}

// headerBytesMax is the longest encoding of what comes before the data.
const headerBytesMax = 4*(1+5) + 8

// encodeFrame writes the frame as one buffer, or as a header and the records
// where they are. The frame gives its memory up.
func encodeFrame(f *Frame) mem.BufferSlice {
	if len(f.Data) == 0 {
		f.Free()
		return mem.BufferSlice{mem.SliceBuffer(appendTrailer(appendHeader(nil, f), f))}
	}
	header := make([]byte, 0, headerBytesMax)
	header = appendHeader(header, f)
	header = protowire.AppendTag(header, fieldData, protowire.BytesType)
	header = protowire.AppendVarint(header, uint64(len(f.Data)))
	out := mem.BufferSlice{mem.SliceBuffer(header)}
	if f.Owner != nil && mem.IsBelowBufferPoolingThreshold(cap(f.Data)) {
		// gRPC does not count references to what is small, so that its owner
		// would never have it back.
		out = append(out, mem.SliceBuffer(append([]byte(nil), f.Data...)))
		f.Owner.Free()
	} else if f.Owner != nil {
		lent := &lentBuffer{data: f.Data, owner: f.Owner}
		out = append(out, mem.NewBuffer(&lent.data, lent))
	} else {
		out = append(out, mem.SliceBuffer(f.Data))
	}
	f.Data, f.Owner = nil, nil
	if trailer := appendTrailer(nil, f); len(trailer) > 0 {
		out = append(out, mem.SliceBuffer(trailer))
	}
	return out
}

// lentBuffer gives a frame's memory back to its owner when gRPC has sent it:
// to gRPC it looks like the pool that the buffer came from.
type lentBuffer struct {
	data  []byte
	owner element.Owner
}

// Get implements mem.BufferPool; nobody asks for a buffer.
func (l *lentBuffer) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (l *lentBuffer) Put(*[]byte) { l.owner.Free() }

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendHeader(b []byte, f *Frame) []byte {
	b = appendNumber(b, fieldChannel, uint64(f.Channel))
	b = appendNumber(b, fieldKind, uint64(f.Kind))
	return appendNumber(b, fieldCount, uint64(uint32(f.Count)))
}

func appendTrailer(b []byte, f *Frame) []byte {
	b = appendNumber(b, fieldCheckpoint, uint64(f.Barrier.Checkpoint))
	var flags uint64
	if f.Barrier.Savepoint {
		flags |= flagSavepoint
	}
	if f.Barrier.Stop {
		flags |= flagStop
	}
	if f.Barrier.Drain {
		flags |= flagDrain
	}
	b = appendNumber(b, fieldBarrierFlags, flags)
	if f.Barrier.SavepointDir != "" {
		b = protowire.AppendString(protowire.AppendTag(b, fieldSavepointDir, protowire.BytesType), f.Barrier.SavepointDir)
	}
	b = appendNumber(b, fieldWatermark, protowire.EncodeZigZag(f.Watermark))
	b = appendNumber(b, fieldIdle, protowire.EncodeBool(f.Idle))
	b = appendNumber(b, fieldBase, uint64(f.Barrier.Base))
	b = appendNumber(b, fieldAlignment, uint64(f.Barrier.Alignment))
	return appendNumber(b, fieldTimeout, uint64(f.Barrier.AlignedTimeout))
}

// decodeFrame reads a frame whose records stay where gRPC put them, if they
// are in one piece; otherwise they are copied together once.
func decodeFrame(data mem.BufferSlice, f *Frame) error {
	*f = Frame{}
	var content []byte
	var owner element.Owner
	if len(data) == 1 {
		data[0].Ref()
		content, owner = data[0].ReadOnlyData(), receivedBuffer{data[0]}
	} else {
		content, owner = joinBuffer(data.Len())
		data.CopyTo(content)
	}
	if err := parseFrame(content, f); err != nil {
		owner.Free()
		*f = Frame{}
		return fmt.Errorf("read frame: %w", err)
	}
	if len(f.Data) == 0 {
		owner.Free()
		f.Data = nil
		return nil
	}
	f.Owner = owner
	return nil
}

// receivedBuffer frees the message that a frame's records are in.
type receivedBuffer struct{ mem.Buffer }

const (
	// joinedBytes is the size of the pooled buffers in which the pieces of a
	// message are put together: a frame as batches are cut, with what is
	// around it and the record that crossed the mark.
	joinedBytes = 40 << 10
	// joinedBytesMin is what is too small to occupy such a buffer: the credit
	// of a channel counts content, and a pooled buffer would take ten times
	// that.
	joinedBytesMin = 4 << 10
)

// joined are our own because those of gRPC come in few sizes, the one above
// 32 KiB being 1 MiB, and are zeroed as a whole each time: that took half of
// the processor time of an exchange.
var joined = sync.Pool{New: func() any { return &joinedBuffer{data: make([]byte, joinedBytes)} }}

type joinedBuffer struct{ data []byte }

// Free implements element.Owner.
func (b *joinedBuffer) Free() { joined.Put(b) }

// garbage is the owner of memory that the garbage collector takes back.
type garbage struct{}

// Free implements element.Owner.
func (garbage) Free() {}

// joinBuffer gives size bytes, of any content.
func joinBuffer(size int) ([]byte, element.Owner) {
	if size < joinedBytesMin || size > joinedBytes {
		return make([]byte, size), garbage{}
	}
	b := joined.Get().(*joinedBuffer)
	return b.data[:size], b
}

// errField says that a field has another wire type than the protocol's.
var errField = errors.New("field has the wrong type")

// parseFrame reads the message. Fields that it does not know are skipped, as
// protobuf wants it; of a repeated field the last one counts.
func parseFrame(b []byte, f *Frame) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch field {
		case fieldData, fieldSavepointDir:
			if kind != protowire.BytesType {
				return fmt.Errorf("field %d: %w", field, errField)
			}
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			if field == fieldData {
				f.Data = v
				continue
			}
			if !utf8.Valid(v) {
				return errors.New("savepoint directory is not UTF-8")
			}
			f.Barrier.SavepointDir = string(v)
		case fieldChannel, fieldKind, fieldCount, fieldCheckpoint, fieldBarrierFlags, fieldWatermark, fieldIdle, fieldBase,
			fieldAlignment, fieldTimeout:
			if kind != protowire.VarintType {
				return fmt.Errorf("field %d: %w", field, errField)
			}
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			if err := f.setNumber(field, v); err != nil {
				return err
			}
		default:
			n := protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	if f.Kind < element.Records || f.Kind > element.EndOfPartition {
		return fmt.Errorf("kind %d is unknown", f.Kind)
	}
	return nil
}

func (f *Frame) setNumber(field protowire.Number, v uint64) error {
	switch field {
	case fieldChannel:
		f.Channel = uint32(v)
	case fieldKind:
		if v > math.MaxUint8 {
			return fmt.Errorf("kind %d is unknown", v)
		}
		f.Kind = element.Kind(v)
	case fieldCount:
		f.Count = int(uint32(v))
	case fieldCheckpoint:
		f.Barrier.Checkpoint = ids.CheckpointID(v)
	case fieldBase:
		f.Barrier.Base = ids.CheckpointID(v)
	case fieldBarrierFlags:
		f.Barrier.Savepoint = v&flagSavepoint != 0
		f.Barrier.Stop = v&flagStop != 0
		f.Barrier.Drain = v&flagDrain != 0
	case fieldAlignment:
		if v > uint64(element.Unaligned) {
			return fmt.Errorf("alignment %d is unknown", v)
		}
		f.Barrier.Alignment = element.Alignment(v)
	case fieldTimeout:
		if v > math.MaxInt64 {
			return fmt.Errorf("a timeout of %d ms cannot be", v)
		}
		f.Barrier.AlignedTimeout = int64(v)
	case fieldWatermark:
		f.Watermark = protowire.DecodeZigZag(v)
	case fieldIdle:
		f.Idle = protowire.DecodeBool(v)
	}
	return nil
}
