package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// bootID tells start times of this boot from those of earlier ones, which
// count from zero as well.
var bootID = sync.OnceValues(func() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content)), err
})

// lookUpProcess reads /proc; ok is false when there is no such process.
func lookUpProcess(pid int) (info processInfo, ok bool, err error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	// A process that ends while its file is read gives ESRCH.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return processInfo{}, false, nil
	}
	if err != nil {
		return processInfo{}, false, fmt.Errorf("look for process %d: %w", pid, err)
	}
	info, err = parseStat(string(content))
	if err != nil {
		return processInfo{}, false, fmt.Errorf("look for process %d: %w", pid, err)
	}
	boot, err := bootID()
	if err != nil {
		return processInfo{}, false, fmt.Errorf("look for process %d: %w", pid, err)
	}
	info.started = boot + "/" + info.started
	return info, true, nil
}

// parseStat reads a line of /proc/<pid>/stat. The name in parentheses may
// contain anything, so the fields are counted from the last parenthesis.
func parseStat(line string) (processInfo, error) {
	pid, _, ok := strings.Cut(line, " ")
	end := strings.LastIndexByte(line, ')')
	if !ok || end < 0 {
		return processInfo{}, fmt.Errorf("%q is not a process's status", line)
	}
	// fields[0] is the third of the manual's: state, parent, group, session, …, start time (the 22nd).
	fields := strings.Fields(line[end+1:])
	if len(fields) < 20 {
		return processInfo{}, fmt.Errorf("%q is not a process's status", line)
	}
	number, err1 := strconv.Atoi(pid)
	session, err2 := strconv.Atoi(fields[3])
	if err := errors.Join(err1, err2); err != nil {
		return processInfo{}, err
	}
	return processInfo{
		pid:      number,
		session:  session,
		started:  fields[19],
		isZombie: fields[0] == "Z" || fields[0] == "X",
	}, nil
}

func listProcesses() ([]processInfo, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []processInfo
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		info, ok, err := lookUpProcess(pid)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, info)
		}
	}
	return all, nil
}
