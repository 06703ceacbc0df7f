// Package inspect reads a stored checkpoint or savepoint without a cluster:
// what it holds, whether its files are what was written, and the entries of
// its states in a form that people can read.
//
// It knows no type of the program that wrote the state. Keys and values are
// decoded by the schemas that are stored beside them, as far as those say how:
// the key encoding of package keygroup and the derived codec of package codec.
// All other bytes are shown as hexadecimal digits.
//
// Stored bytes are not trusted: what does not fit its schema is an error or is
// shown as bytes, never a panic or an allocation out of proportion.
package inspect
