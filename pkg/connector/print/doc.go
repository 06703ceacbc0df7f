// Package print is a sink that writes records as lines to the job's output,
// where flinkctl logs shows them; in direct mode that is the program's stdout.
// Each line starts with the operator's UID and the number of the subtask:
//
//	counts[2]> {Word:weir Count:7}
//
// After a failure, records since the restored checkpoint are printed again.
package print
