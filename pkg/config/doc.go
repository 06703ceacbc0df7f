// Package config reads Weir's configuration: conf/config.yaml, overridden by
// -D key=value. Keys are Flink 2's where Flink has one.
//
// Every key is an [Option] with a type, a default, a range and a scope,
// declared in options_cluster.go and options_job.go; docs/CONFIG.md is
// generated from them. A [Config] is an immutable set of values, so it may be
// shared by goroutines: overriding makes a new one. An option that is not set
// has its default, and a nil *Config has all defaults.
//
// Nothing is corrected silently. An unknown key, a value of the wrong form or
// out of range, and values that contradict each other are a [*KeyError] which
// says where the value stood.
//
// Only [Load] touches a file. Processes hand a Config on with [Config.Map],
// which holds the secrets in clear text and therefore never goes onto a command
// line or into a log; [Config.String] masks them.
package config
