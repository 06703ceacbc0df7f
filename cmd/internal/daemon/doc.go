// Package daemon is what the mains of the JobManager and the TaskManager have
// in common: flags, configuration, logging, signals, and the word that the
// process is ready.
package daemon
