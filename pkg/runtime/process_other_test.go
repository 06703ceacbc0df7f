//go:build unix && !linux

package runtime

// hasDeathSignal: the lifeline alone ties executors to their TaskManager.
const hasDeathSignal = false
