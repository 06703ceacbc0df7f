// Package e2e tests clusters of real processes through the command line: it
// kills them, submits what cannot work, and compares output with truth that is
// computed apart. Its tests have the build tag e2e and are run by make
// test-e2e, which builds the binaries and the S3 server first.
//
// Every test has a cluster of its own on loopback, and stops it however the
// test ends. Logs of a failed test are in its output.
package e2e
