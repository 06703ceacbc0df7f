// Package blackhole is a sink that drops what it is given, for measurements
// and for jobs whose only result is their state.
package blackhole
