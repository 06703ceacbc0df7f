package runtime

import (
	"os"
	"strconv"
	"syscall"
)

// executorAttributes put an executor into a process group of its own, which is
// killed as a whole, and let the kernel kill it when the TaskManager dies.
// It stays in the TaskManager's session.
func executorAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// preferForOOM makes the kernel choose an executor before its TaskManager when
// memory runs out. Best effort: some containers forbid it.
func preferForOOM(pid int) {
	const score = "500" // half of what makes a process the certain victim
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(score), 0)
}
