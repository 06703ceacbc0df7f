// Package cliresult is the JSON that flinkctl prints with -o json.
//
// flinkctl makes these values from the JobManager's answers; the demo and the
// tests of processes read them back. Field names are part of the command
// line's interface: they may be added to and never change. Lists are never
// null, times are RFC 3339 in UTC and absent while unknown, checkpoint 0 is no
// checkpoint.
package cliresult
