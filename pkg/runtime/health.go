package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// The answers of a HealthServer.
const (
	healthy   = "registered"
	unhealthy = "not registered"
)

// healthTimeout bounds one answer, on both sides.
const healthTimeout = 5 * time.Second

// HealthServer answers every connection with one line that says whether the
// TaskManager is registered.
type HealthServer struct {
	listener net.Listener
	check    func() bool
	serving  sync.WaitGroup
}

// ServeHealth starts to answer on the listener, which it takes over.
func ServeHealth(l net.Listener, isHealthy func() bool) *HealthServer {
	h := &HealthServer{listener: l, check: isHealthy}
	h.serving.Go(h.serve)
	return h
}

// Address is where it listens.
func (h *HealthServer) Address() string { return h.listener.Addr().String() }

// serve answers one connection after the other: an answer is a few bytes that
// never wait for the peer for longer than healthTimeout.
func (h *HealthServer) serve() {
	for {
		conn, err := h.listener.Accept()
		if err != nil {
			return
		}
		answer := unhealthy
		if h.check() {
			answer = healthy
		}
		// Whoever has gone without the answer does not miss it.
		_ = conn.SetDeadline(time.Now().Add(healthTimeout))
		_, _ = io.WriteString(conn, answer+"\n")
		_ = conn.Close()
	}
}

// Close ends it.
func (h *HealthServer) Close() error {
	err := h.listener.Close()
	h.serving.Wait()
	return err
}

// CheckHealth asks the TaskManager at address; nil means that it is registered.
func CheckHealth(ctx context.Context, address string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("TaskManager at %s does not answer: %w", address, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(healthTimeout)); err != nil {
		return err
	}
	line, err := io.ReadAll(io.LimitReader(conn, 64))
	if err != nil {
		return fmt.Errorf("TaskManager at %s does not answer: %w", address, err)
	}
	if answer := strings.TrimSpace(string(line)); answer != healthy {
		return fmt.Errorf("TaskManager at %s is %s", address, answer)
	}
	return nil
}
