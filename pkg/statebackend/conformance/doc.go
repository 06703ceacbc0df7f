// Package conformance has the runs of the suite of package backendtest, one for
// each state backend. They are not beside the backends because the suite takes
// a minute to compile: a package whose tests are inside it is compiled once
// more for them, and all that imports it with it.
package conformance
