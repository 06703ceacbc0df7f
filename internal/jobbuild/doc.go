// Package jobbuild makes what is submitted of a job program: a static binary
// for the cluster's platform and the graph that the program describes.
//
// A program is a Go package, which is compiled here, or a binary, which is
// inspected instead. To obtain the graph the program runs on this host in graph
// mode: it writes the graph to a descriptor of its own and touches neither its
// input nor its output. When the cluster has another platform the package is
// compiled a second time for this host; the graph of both is the same, and the
// executors check that it is.
//
// Everything that can be wrong with a program is an *Error with a one-line
// message, and with the compiler's or the program's own words where there are any.
package jobbuild
