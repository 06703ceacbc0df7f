// Package filetest is a state backend for tests of everything that deals with
// keyed state in files: incremental checkpoints, their restore and local
// recovery. It keeps the state with another backend and, when a view is to be
// in files, cuts its canonical bytes into files of a few key groups each. Files
// whose content an earlier view had are shared with it.
//
// Names count up from one in every life of a state, as they do with an LSM
// tree: a file of another life may well have the same name and another
// content. What is the same in every run: equal calls give equal names, files
// and bytes. It starts no goroutine.
package filetest
