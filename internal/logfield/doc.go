// Package logfield makes the fields of log entries, so that one thing has one
// key in the logs of every process. Keys are lower case with underscores and
// are part of what operators search for: they are not renamed.
//
// Only shells log (internal/archtest keeps zap out of everything below them);
// they add what identifies the entry with these functions and nothing by hand.
package logfield
