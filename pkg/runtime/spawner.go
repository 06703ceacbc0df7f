package runtime

import (
	"os/exec"
	goruntime "runtime"
)

// spawner starts processes from one thread that lives as long as it does.
// A process with Pdeathsig is killed when the thread that forked it exits, and
// Go ends threads whenever it likes.
type spawner struct {
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// Never unlocked: the thread ends with this goroutine.
		goruntime.LockOSThread()
		for request := range s.requests {
			request.result <- request.cmd.Start()
		}
	}()
	return s
}

// start starts the command on the spawner's thread. Not after close.
func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	s.requests <- spawnRequest{cmd: cmd, result: result}
	return <-result
}

// close ends the thread, and with it what still lives of its processes.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}
