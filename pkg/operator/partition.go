package operator

import (
	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
)

// Prefetcher is implemented by collectors that profit from knowing the next
// records a little ahead, such as operators with keyed state: entries of
// several keys then come from memory together instead of one by one.
type Prefetcher[T any] interface {
	// Prefetch shows the records that Collect will be called with next. They
	// may be shown again: a subtask that yields comes back to the rest.
	Prefetch(next []T)
}

// PrefetchMax is how many records a Prefetcher is shown at once: enough that
// their cache misses overlap as far as a core can (some 10 to 16 at a time),
// few enough that the first entry is still in the cache when its turn comes.
const PrefetchMax = 16

// NewInput makes the decode loop in front of next.
func NewInput[T any](c codec.Codec[T], next Collector[T]) Input {
	if p, ok := next.(Prefetcher[T]); ok {
		return &batchInput[T]{codec: c, next: next, prefetcher: p}
	}
	if codec.IsMemory(c) {
		return &memoryInput[T]{next: next}
	}
	return &input[T]{codec: c, next: next}
}

// memoryInput is for records whose encoding is their memory: they are read
// where they arrived.
type memoryInput[T any] struct{ next Collector[T] }

// Process implements Input.
func (in *memoryInput[T]) Process(data []byte, pace *Pace) (consumed, records int, err error) {
	defer codec.Recover(&err)
	for consumed < len(data) {
		v, n, err := codec.MemoryAt[T](data[consumed:])
		if err != nil {
			return consumed, records, err
		}
		consumed += n
		records++
		if err := in.next.Collect(*v); err != nil {
			return consumed, records, err
		}
		if pace.ShouldYield() {
			break
		}
	}
	return consumed, records, nil
}

// input decodes each record into one reused variable, so that no record
// escapes to the heap by itself.
type input[T any] struct {
	codec codec.Codec[T]
	next  Collector[T]
	v     T
}

// Process implements Input.
func (in *input[T]) Process(data []byte, pace *Pace) (consumed, records int, err error) {
	defer codec.Recover(&err)
	for consumed < len(data) {
		n, err := in.codec.Decode(data[consumed:], &in.v)
		if err != nil {
			return consumed, records, err
		}
		consumed += n
		records++
		if err := in.next.Collect(in.v); err != nil {
			return consumed, records, err
		}
		if pace.ShouldYield() {
			break
		}
	}
	return consumed, records, nil
}

// batchInput decodes a few records ahead. When the subtask yields among them,
// those that were not processed are still input, and are decoded again.
type batchInput[T any] struct {
	codec      codec.Codec[T]
	next       Collector[T]
	prefetcher Prefetcher[T]
	batch      [PrefetchMax]T
	ends       [PrefetchMax]int
	// time, unless nil, is where the codec leaves each record's timestamp.
	time   *Time
	stamps [PrefetchMax]int64
}

// Process implements Input.
func (in *batchInput[T]) Process(data []byte, pace *Pace) (consumed, records int, err error) {
	defer codec.Recover(&err)
	for consumed < len(data) {
		n, end := 0, consumed
		var decodeErr error
		for n < PrefetchMax && end < len(data) {
			size, err := in.codec.Decode(data[end:], &in.batch[n])
			if err != nil {
				// The records in front of it come first.
				decodeErr = err
				break
			}
			end += size
			in.ends[n] = end
			if in.time != nil {
				in.stamps[n] = in.time.Timestamp
			}
			n++
		}
		in.prefetcher.Prefetch(in.batch[:n])
		for i := range n {
			if in.time != nil {
				in.time.Timestamp = in.stamps[i]
			}
			if err := in.next.Collect(in.batch[i]); err != nil {
				return in.ends[i], records + 1, err
			}
			records++
			consumed = in.ends[i]
			if pace.ShouldYield() {
				return consumed, records, nil
			}
		}
		if decodeErr != nil {
			return consumed, records, decodeErr
		}
	}
	return consumed, records, nil
}

// encoder appends records to buffers.
type encoder[T any] struct {
	codec  codec.Codec[T]
	memory bool // the encoding is the record's memory
	v      T    // what the codec is given, here so that it does not escape
}

func newEncoder[T any](c codec.Codec[T]) encoder[T] {
	return encoder[T]{codec: c, memory: codec.IsMemory(c)}
}

// viaCodec is for records that are more than their memory.
func (e *encoder[T]) viaCodec(b *ChannelBuffer, v T) {
	e.v = v
	b.Data = e.codec.Append(b.Data, &e.v)
}

// NewForwardOutput sends every record to channel 0: the edge has one channel
// for each producer.
func NewForwardOutput[T any](c codec.Codec[T], w *Writer) Collector[T] {
	return &forwardOutput[T]{encoder: newEncoder(c), w: w}
}

type forwardOutput[T any] struct {
	encoder encoder[T]
	w       *Writer
}

// Collect implements Collector.
func (o *forwardOutput[T]) Collect(v T) error {
	b := &o.w.Channels[0]
	if o.encoder.memory {
		b.Data = codec.AppendMemory(b.Data, &v)
	} else {
		o.encoder.viaCodec(b, v)
	}
	b.Count++
	if len(b.Data) >= b.Limit {
		o.w.Cut(0)
	}
	return nil
}

// NewHashOutput sends a record to the subtask that owns its key's group.
func NewHashOutput[T any, K comparable](c codec.Codec[T], key func(T) K, enc *keygroup.Encoding[K], w *Writer) Collector[T] {
	o := &hashOutput[T, K]{encoder: newEncoder(c), key: key, enc: enc, w: w, owner: make([]int32, w.MaxParallelism)}
	for g := range o.owner {
		o.owner[g] = int32(keygroup.OwnerOf(keygroup.Group(g), w.Parallelism, w.MaxParallelism))
	}
	return o
}

type hashOutput[T any, K comparable] struct {
	encoder encoder[T]
	key     func(T) K
	enc     *keygroup.Encoding[K]
	w       *Writer
	owner   []int32 // by key group
	k       K
}

// Collect implements Collector.
func (o *hashOutput[T, K]) Collect(v T) error {
	o.k = o.key(v)
	ch := int(o.owner[keygroup.OfHash(o.enc.Hash(&o.k), len(o.owner))])
	b := &o.w.Channels[ch]
	if o.encoder.memory {
		b.Data = codec.AppendMemory(b.Data, &v)
	} else {
		o.encoder.viaCodec(b, v)
	}
	b.Count++
	if len(b.Data) >= b.Limit {
		o.w.Cut(ch)
	}
	return nil
}

// NewRebalanceOutput deals records out in turn. Subtasks start at different
// channels, so that few records do not all go to the first consumer.
func NewRebalanceOutput[T any](c codec.Codec[T], w *Writer) Collector[T] {
	invariant.Check(len(w.Channels) > 0, "I7", "rebalance output without channels")
	return &rebalanceOutput[T]{encoder: newEncoder(c), w: w, next: w.Subtask % len(w.Channels)}
}

type rebalanceOutput[T any] struct {
	encoder encoder[T]
	w       *Writer
	next    int
}

// Collect implements Collector.
func (o *rebalanceOutput[T]) Collect(v T) error {
	ch := o.next
	if o.next++; o.next == len(o.w.Channels) {
		o.next = 0
	}
	b := &o.w.Channels[ch]
	if o.encoder.memory {
		b.Data = codec.AppendMemory(b.Data, &v)
	} else {
		o.encoder.viaCodec(b, v)
	}
	b.Count++
	if len(b.Data) >= b.Limit {
		o.w.Cut(ch)
	}
	return nil
}

// NewBroadcastOutput sends every record to every subtask.
func NewBroadcastOutput[T any](c codec.Codec[T], w *Writer) Collector[T] {
	return &broadcastOutput[T]{codec: c, w: w}
}

type broadcastOutput[T any] struct {
	codec codec.Codec[T]
	w     *Writer
	buf   []byte
	v     T
}

// Collect implements Collector.
func (o *broadcastOutput[T]) Collect(v T) error {
	o.v = v
	o.buf = o.codec.Append(o.buf[:0], &o.v)
	for ch := range o.w.Channels {
		b := &o.w.Channels[ch]
		b.Data = append(b.Data, o.buf...)
		b.Count++
		if len(b.Data) >= b.Limit {
			o.w.Cut(ch)
		}
	}
	return nil
}

// Tee passes every record to several collectors in order. Records are passed
// by value: collectors share what a record points to and must not change it.
func Tee[T any](collectors []Collector[T]) Collector[T] { return tee[T](collectors) }

type tee[T any] []Collector[T]

// Collect implements Collector.
func (t tee[T]) Collect(v T) error {
	for _, c := range t {
		if err := c.Collect(v); err != nil {
			return err
		}
	}
	return nil
}

// Discard drops records: an output that nobody consumes.
func Discard[T any]() Collector[T] { return discard[T]{} }

type discard[T any] struct{}

// Collect implements Collector.
func (discard[T]) Collect(T) error { return nil }
