// Package avrobench compares libraries of Avro with Weir's own codecs on the
// states of the examples: the choice in docs/decisions/0006-stored-encoding.md.
// It is here, and not beside the codecs, so that Weir does not depend on what
// was not chosen.
//
//	cd tools && go test ./avrobench -bench . -benchtime 200ms
package avrobench
