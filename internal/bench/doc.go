// Command bench measures Weir on a local cluster of real processes, and its
// state in a process of its own, against tuned baselines. It prints the
// figures as lines:
//
//	RATIO <name> <decimal>          median of interleaved pairs
//	BASE <name> <value> <unit>      the baseline's median
//	MEASURE <name> <value> <unit>
//
// It is run by make bench. It exits 0 when a goal is missed: figures are to be
// read, and compared as ratios within one run.
package main
