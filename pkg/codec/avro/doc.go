// Package avro is the encoding in which state is stored: Avro's binary form,
// with the Avro schema beside it, so that the next version of a program reads
// it into types that have changed.
//
// For derives the schema and the codec of a Go type. How Go types are stored:
//
//	bool                      boolean
//	int8 int16 int32          int      (8 and 16 bits marked "weir":"int8", …)
//	int int64                 long
//	uint8 uint16              int      marked
//	uint32                    long     marked
//	uint uint64               long     marked; from 1<<63 on the long is negative, with the same 64 bits
//	float32 float64           float, double
//	complex64 complex128      record of real and imag, marked
//	string                    string, bytes as they are
//	time.Time                 record of seconds, nanos, offset, marked
//	struct                    record, an embedded struct is a field of its type's name
//	[N]byte                   fixed
//	[N]T                      array marked with its length
//	[]byte                    null or bytes
//	[]T                       null or array
//	map[string]V              null or map
//	map[K]V                   null or array of records of key and value, marked
//	*T                        null or T (boxed in a record if T is itself one of null or …)
//	codec.Marshaler           bytes marked with the codec's name
//	protobuf message          null or bytes marked with the message's name
//
// Maps are in the order of their keys' bytes, and arrays are one block: equal
// values give equal bytes. Marks are attributes that other readers of Avro
// ignore.
//
// A field is found by its name, which a tag can set, with the names it had
// before:
//
//	Delay int64 `weir:"delay,alias=Delay,alias=Late"`
//
// The schemas are parsed by github.com/twmb/avro. Encoding and decoding run by
// plans like those of package codec, because no library of Avro orders maps,
// has map keys other than strings, or bounds what it allocates for foreign
// bytes; the tests compare with the library, and docs/decisions has the figures.
package avro
