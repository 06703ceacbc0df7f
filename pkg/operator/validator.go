package operator

// Validator is implemented by sources and sinks that can tell a bad option
// without touching anything: package stream asks when the graph is built, so
// that a job with one is never submitted.
type Validator interface {
	Validate() error
}
