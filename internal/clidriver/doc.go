// Package clidriver runs the flinkctl binary the way a user does and reads
// back what it prints. The demo, the compose check and the tests of processes
// are written with it, so that all of them go through the command line.
package clidriver
