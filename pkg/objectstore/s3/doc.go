// Package s3 is an object store in a bucket of an S3-compatible server. It is
// the only importer of the S3 client.
//
// The client's own retries are switched off. Unconditional calls are repeated
// here, with backoff, for as long as Options.RetryTimeout, so that throttling
// of some seconds is outlasted; conditional writes are sent once. Every
// attempt has a time limit of its own, so that a server that accepts and never
// answers holds nobody up.
//
// Conditional objects are always written by one PutObject: the completion of
// a multipart upload would drop the condition. A stream is sent as one
// PutObject when it is short, and in parts otherwise; both become visible as
// a whole.
//
// Only an answer that is really the server's counts as an absence: a 404
// without an S3 error document, as a proxy sends it, is an error (I9).
package s3
