package statebackend

import (
	"encoding/binary"

	"github.com/weirstream/weir/pkg/codec"
)

// Timed is a value of a state with time-to-live, as its backend holds it.
type Timed[V any] struct {
	// At is when the value was last written, by the state's Clock.
	At    int64
	Value V
}

// Sweeper is implemented by the states of backends that hold expired values
// until they are removed.
type Sweeper interface {
	// Sweep looks at the next few values, of any keys, and removes those that
	// have expired: a bounded piece of work. Called before every access, it
	// passes over everything in as many accesses as there are a few values.
	Sweep()
}

// TimedCodec encodes the time in front of what c encodes. The name and schema
// are those of c, so that a state may get and lose its time-to-live: the flags
// of the stored values tell them apart.
func TimedCodec[V any](c codec.Codec[V]) codec.Codec[Timed[V]] { return timedCodec[V]{c} }

type timedCodec[V any] struct{ codec codec.Codec[V] }

// Name implements codec.Codec.
func (c timedCodec[V]) Name() string { return c.codec.Name() }

// Schema implements codec.Codec.
func (c timedCodec[V]) Schema() string { return c.codec.Schema() }

// Flat implements codec.Codec.
func (c timedCodec[V]) Flat() bool { return c.codec.Flat() }

// Append implements codec.Codec.
func (c timedCodec[V]) Append(dst []byte, v *Timed[V]) []byte {
	return c.codec.Append(binary.LittleEndian.AppendUint64(dst, uint64(v.At)), &v.Value)
}

// Decode implements codec.Codec.
func (c timedCodec[V]) Decode(src []byte, v *Timed[V]) (int, error) {
	at, rest, err := CutTime(src, TimeFlag)
	if err != nil {
		return 0, err
	}
	v.At = at
	n, err := c.codec.Decode(rest, &v.Value)
	return timeBytes + n, err
}

// Clone implements codec.Codec.
func (c timedCodec[V]) Clone(dst, src *Timed[V]) {
	dst.At = src.At
	c.codec.Clone(&dst.Value, &src.Value)
}

// TimedForm is the form of values that expire.
type TimedForm[V any] struct {
	Codec codec.Codec[V]
	Clock *Clock
	// TTL is how long after its last write a value expires, in milliseconds.
	TTL int64
	// Ages stores the age of a value and not its time, so that the time
	// between a snapshot and its restore does not count.
	Ages bool
	// Shift is added to what was stored as a time, in milliseconds.
	Shift int64
}

// Flags implements Form.
func (f TimedForm[V]) Flags() byte {
	if f.Ages {
		return AgeFlag
	}
	return TimeFlag
}

// Append implements Form.
func (f TimedForm[V]) Append(dst []byte, v *Timed[V], now int64) []byte {
	at := v.At
	if f.Ages {
		at = max(0, now-at)
	}
	return f.Codec.Append(binary.LittleEndian.AppendUint64(dst, uint64(at)), &v.Value)
}

// Decode implements Form. A value that was stored without a time, when the
// state had no time-to-live, counts as written now.
func (f TimedForm[V]) Decode(src []byte, flags byte, v *Timed[V]) (int, error) {
	at, rest, err := CutTime(src, flags)
	if err != nil {
		return 0, err
	}
	switch flags {
	case 0:
		at = f.Clock.Now
	case AgeFlag:
		at = max(0, f.Clock.Now-at)
	default:
		at = max(0, at+f.Shift)
	}
	v.At = at
	n, err := f.Codec.Decode(rest, &v.Value)
	return len(src) - len(rest) + n, err
}

// IsExpired implements Form. A time in the future, written on a host whose
// clock was ahead, has no age yet.
func (f TimedForm[V]) IsExpired(v *Timed[V], now int64) bool { return now-v.At >= f.TTL }

// CanExpire implements Form.
func (TimedForm[V]) CanExpire() bool { return true }

// ForSchema implements Form.
func (f TimedForm[V]) ForSchema(name, schema string) (Form[Timed[V]], error) {
	c, err := codec.ForSchema(f.Codec, name, schema)
	f.Codec = c
	return f, err
}

// Standing is the same form with the clock standing at now, and with a Shift:
// what is read with it does not depend on when, and any goroutine may use it.
func (f TimedForm[V]) Standing(now, shift int64) Form[Timed[V]] {
	f.Clock, f.Shift = &Clock{Now: now}, shift
	return f
}
