// Package codec turns values of user types into bytes and back: records
// between subtasks, values in state.
//
// For derives a codec from a type once, by reflection, into a short list of
// field operations that then run without reflection. The layout is defined
// and little-endian: fixed-width numbers (the same bytes as in memory on a
// little-endian host, so that runs of them are one copy), then everything of
// variable size with its length in front. It is deterministic: equal values
// give equal bytes, maps included.
//
// A type may bring its own encoding by implementing Marshaler, a protobuf
// message is encoded as protobuf, and whoever wants something else implements
// Codec and passes it where a codec can be passed.
//
// Decoding never trusts its input: arbitrary bytes give an error or a value,
// never a panic or an allocation out of proportion to the bytes.
package codec
