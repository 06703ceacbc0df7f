package codec

import (
	"errors"
	"fmt"
)

// Codec encodes values of type T. Implementations are immutable and may be
// used by several goroutines at once: the snapshot of a state is encoded
// while its operator goes on.
type Codec[T any] interface {
	// Name is the codec's name and version, as in "weir/1". Stored with every
	// snapshot; bytes of another name are not read.
	Name() string
	// Schema describes what is encoded, in the codec's own notation. Equal
	// schemas under equal names mean exchangeable bytes.
	Schema() string
	// Append appends the encoding of *v to dst. It panics with an
	// *EncodeError if the value cannot be encoded, which the codecs that For
	// derives never do (unless a Marshaler inside fails).
	Append(dst []byte, v *T) []byte
	// Decode reads one value from the start of src into *v and says how many
	// bytes it took. The value shares no memory with src, nor with what *v
	// held before. On an error, which wraps ErrMalformed for bytes that are
	// none of its encodings, *v is unspecified but safe to drop or overwrite.
	Decode(src []byte, v *T) (n int, err error)
	// Clone makes *dst a deep copy of *src: changes through one are not seen
	// through the other.
	Clone(dst, src *T)
	// Flat reports that assignment is already a deep copy (numbers, strings,
	// and structs and arrays of them), so that Clone is not needed.
	Flat() bool
}

// Marshaler is implemented by (pointers to) types that encode themselves.
// For uses it for the type itself and wherever the type occurs in another.
type Marshaler interface {
	// CodecName is the name and version of the encoding. It must not depend
	// on the value.
	CodecName() string
	// MarshalAppend appends the encoding to dst. Equal values must give equal bytes.
	MarshalAppend(dst []byte) ([]byte, error)
	// UnmarshalFrom sets the receiver from the bytes of one MarshalAppend. It
	// must not keep src.
	UnmarshalFrom(src []byte) error
}

// ErrMalformed is wrapped by errors of Decode about the bytes.
var ErrMalformed = errors.New("malformed bytes")

// EncodeError is what Append panics with when a value cannot be encoded: a
// Marshaler or a protobuf message refused it. Append has no error result
// because nothing else can fail and it runs once per record; whoever encodes
// for the runtime recovers it with Recover.
type EncodeError struct {
	Codec string
	Err   error
}

// Error says which codec failed and why.
func (e *EncodeError) Error() string { return fmt.Sprintf("encode with codec %s: %v", e.Codec, e.Err) }

// Unwrap gives the cause.
func (e *EncodeError) Unwrap() error { return e.Err }

// Recover turns a panic of Append into *err; it is deferred. Other panics go on.
func Recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *EncodeError:
		*err = r
	default:
		panic(r)
	}
}
