package transport

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Network is how processes find each other. Its methods may be called
// concurrently.
type Network interface {
	// Listen opens host:port; port 0 lets the network choose one.
	Listen(address string) (net.Listener, error)
	// Dial connects to host:port.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the network of real processes.
type TCP struct{}

// Listen implements Network.
func (TCP) Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// Dial implements Network.
func (TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// pipeBytes is the buffer of a connection inside one process, for each
// direction: a few frames, so that the two ends need not take turns.
const pipeBytes = 256 << 10

// InProcess is a network inside this process. Addresses mean something to the
// same InProcess only, whatever their host. The zero value is ready.
type InProcess struct {
	mu struct {
		sync.Mutex
		listeners map[string]*inProcessListener
		port      int
	}
}

// Listen implements Network.
func (n *InProcess) Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		n.mu.port++
		address = net.JoinHostPort(host, strconv.Itoa(n.mu.port))
	}
	if n.mu.listeners[address] != nil {
		return nil, fmt.Errorf("listen on %s: the address is in use", address)
	}
	l := &inProcessListener{Listener: bufconn.Listen(pipeBytes), network: n, address: address}
	if n.mu.listeners == nil {
		n.mu.listeners = map[string]*inProcessListener{}
	}
	n.mu.listeners[address] = l
	return l, nil
}

// Dial implements Network.
func (n *InProcess) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.mu.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("connect to %s: nobody listens there", address)
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

type inProcessListener struct {
	*bufconn.Listener
	network *InProcess
	address string
}

// Addr is the address that Dial knows.
func (l *inProcessListener) Addr() net.Addr { return inProcessAddr(l.address) }

// Close makes the address free again.
func (l *inProcessListener) Close() error {
	l.network.mu.Lock()
	if l.network.mu.listeners[l.address] == l {
		delete(l.network.mu.listeners, l.address)
	}
	l.network.mu.Unlock()
	return l.Listener.Close()
}

type inProcessAddr string

// Network implements net.Addr.
func (inProcessAddr) Network() string { return "in-process" }

// String implements net.Addr.
func (a inProcessAddr) String() string { return string(a) }
