// Package racedetector tells tests whether they run under the race detector,
// which takes some ten times as long.
package racedetector
