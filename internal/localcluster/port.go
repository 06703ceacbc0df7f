package localcluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	loopback = "127.0.0.1"
	// defaultJobManagerPort is where flinkctl looks when it is told nothing.
	defaultJobManagerPort = 6123
	// Ports are chosen below those that systems give to outgoing connections, so
	// that no such connection sits on the port of a process to be started again.
	portFirst, portEnd = 20000, 32000
	// portTries makes it certain that a free one is found where there are any.
	portTries = 200
)

// freeAddress chooses a port on loopback, preferred if that is free; 0 prefers
// none. What is promised already, and not in use yet, is left out.
func freeAddress(preferred int, isPromised func(address string) bool) (string, error) {
	if preferred != 0 && isFreeAddress(address(preferred)) {
		return address(preferred), nil
	}
	for range portTries {
		chosen := address(portFirst + rand.IntN(portEnd-portFirst))
		if !isPromised(chosen) && isFreeAddress(chosen) {
			return chosen, nil
		}
	}
	return "", errors.New("no free port on " + loopback)
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// isFreeAddress reports whether a server could listen there now.
func isFreeAddress(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
