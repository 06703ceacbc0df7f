package localcluster

// identity names one life of a process: PIDs are given out again, start times
// of one PID differ.
type identity struct {
	PID int `json:"pid"`
	// Started is the system's own word for when the process started: only equality means something.
	Started string `json:"started"`
}

// isZero reports whether there is no process.
func (i identity) isZero() bool { return i.PID == 0 }

// isAlive reports whether the process runs. A zombie does not.
func (i identity) isAlive() (bool, error) {
	if i.isZero() {
		return false, nil
	}
	info, ok, err := lookUpProcess(i.PID)
	if err != nil || !ok {
		return false, err
	}
	return info.started == i.Started && !info.isZombie, nil
}

// processInfo is what the system says about one process.
type processInfo struct {
	pid, session int
	started      string
	isZombie     bool
}

// membersOfSession lists the living processes of the session that the process
// leads or led, itself not included. While a session has members, its number
// is not given to another process; so a living leader with another start time
// means that the session asked for is over.
func (i identity) membersOfSession() ([]int, error) {
	if i.isZero() {
		return nil, nil
	}
	leader, ok, err := lookUpProcess(i.PID)
	if err != nil {
		return nil, err
	}
	if ok && leader.started != i.Started {
		return nil, nil
	}
	all, err := listProcesses()
	if err != nil {
		return nil, err
	}
	var members []int
	for _, p := range all {
		if p.session == i.PID && p.pid != i.PID && !p.isZombie {
			members = append(members, p.pid)
		}
	}
	return members, nil
}
