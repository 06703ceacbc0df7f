//go:build unix && !linux

package runtime

import "syscall"

// executorAttributes put an executor into a process group of its own, which is
// killed as a whole. Without Pdeathsig the lifeline alone ties it to the TaskManager.
func executorAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// preferForOOM has no counterpart here.
func preferForOOM(int) {}
