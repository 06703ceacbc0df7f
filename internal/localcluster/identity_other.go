//go:build unix && !linux

package localcluster

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lookUpProcess asks ps; ok is false when there is no such process.
func lookUpProcess(pid int) (info processInfo, ok bool, err error) {
	all, err := ps("-p", strconv.Itoa(pid))
	if err != nil || len(all) == 0 {
		return processInfo{}, false, err
	}
	return all[0], true, nil
}

func listProcesses() ([]processInfo, error) { return ps("-A") }

// ps runs the command that every Unix has. It fails when it finds nothing.
func ps(selection ...string) ([]processInfo, error) {
	output, err := exec.Command("ps", append(selection, "-o", "pid=,stat=,lstart=")...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []processInfo
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		// A process that ended meanwhile belongs to no session.
		session, err := unix.Getsid(pid)
		if err != nil {
			session = 0
		}
		all = append(all, processInfo{
			pid: pid, session: session, started: strings.Join(fields[2:], " "), isZombie: strings.HasPrefix(fields[1], "Z"),
		})
	}
	return all, nil
}
