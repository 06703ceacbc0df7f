//go:build race

package racedetector

// Enabled says that the race detector is compiled in.
const Enabled = true
