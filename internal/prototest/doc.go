// Package prototest holds the test that the committed protobuf code is what
// `make proto` makes of the .proto files. It has no code of its own.
package prototest
