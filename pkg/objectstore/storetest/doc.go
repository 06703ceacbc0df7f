// Package storetest is the conformance suite of package objectstore: what
// every implementation of the port must do. An implementation's own test
// calls Run.
package storetest
