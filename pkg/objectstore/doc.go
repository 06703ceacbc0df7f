// Package objectstore is the port through which everything durable is
// written: a flat namespace of objects, each visible only when it is whole,
// with conditional writes for the few objects that fence.
//
// The implementations are s3 (any S3-compatible server), local (a directory
// of this host or a shared file system), memory (tests and simulations) and
// faulty (a wrapper that injects faults). Package storetest holds the
// conformance suite that all of them pass; package open picks one by URI.
//
// Two rules shape the interface. An error is not an absence (I9): ErrNotExist
// is returned only when the store itself said that the object does not exist.
// An unknown write result is not a failure (I10): a write whose reply was
// lost returns ErrUnknownOutcome, and the caller must read before it decides.
//
// The package does not know what the objects mean or how they are named: that
// is package checkpointstore.
package objectstore
