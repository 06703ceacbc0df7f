// Command taskmanager is Weir's TaskManager: it offers the slots of its host
// and runs the task executors of jobs.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	_ "time/tzdata" // images from scratch have no time zones

	"go.uber.org/zap"

	"github.com/weirstream/weir/cmd/internal/daemon"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime"
	"github.com/weirstream/weir/pkg/stream"
	"github.com/weirstream/weir/pkg/transport"
)

func main() {
	daemon.Main(daemon.Program{
		Name: "taskmanager", Title: "TaskManager",
		Long: `Runs a TaskManager of a Weir cluster in the foreground.

It registers with the JobManager at jobmanager.rpc.address and offers
taskmanager.numberOfTaskSlots slots. Its executors, one process for each job,
end when it ends, however that happens.`,
		Example: `  taskmanager --config conf/config.yaml
  taskmanager -D jobmanager.rpc.address=jobmanager -D taskmanager.numberOfTaskSlots=4`,
		Serve:  serve,
		Health: health,
	})
}

func serve(ctx context.Context, p daemon.Process) (err error) {
	c, err := advertise(p.Config, os.Hostname)
	if err != nil {
		return err
	}
	work, err := runtime.OpenWorkDir(config.WorkingDirectory.Get(c), config.TemporaryDirectory.Get(c), "taskmanager")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	listener, err := listen(config.TaskManagerBindHost.Get(c), config.TaskManagerRPCPort.Get(c))
	if err != nil {
		return err
	}
	id, err := newID(config.TaskManagerResourceID.Get(c))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	address := net.JoinHostPort(config.JobManagerRPCAddress.Get(c), strconv.Itoa(config.JobManagerRPCPort.Get(c)))
	client, err := transport.DialJobManager(address, transport.DialOptions{})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	launcher := runtime.NewProcessLauncher([]string{stream.ModeVariable + "=" + stream.ExecutorMode}, p.Log)
	var once sync.Once
	taskManager, err := runtime.New(runtime.Options{
		Config:     c,
		ID:         id,
		Host:       config.TaskManagerHost.Get(c),
		WorkDir:    work.Path(),
		Connect:    client.TaskManagerSession,
		Artifacts:  client,
		JobManager: address,
		Launcher:   launcher,
		Registered: func() {
			once.Do(func() {
				if err := p.Ready(listener.Addr().String()); err != nil {
					p.Log.Warn("nobody was told that the TaskManager is ready", zap.Error(err))
				}
			})
		},
		Log: p.Log,
	})
	if err != nil {
		return errors.Join(err, listener.Close(), client.Close(), launcher.Close())
	}
	health := runtime.ServeHealth(listener, taskManager.IsRegistered)
	err = taskManager.Run(ctx)
	return errors.Join(err, health.Close(), client.Close(), launcher.Close())
}

// listen takes the first free port of a range.
func listen(host string, ports config.PortRange) (net.Listener, error) {
	var last error
	for port := ports.First; port <= ports.Last; port++ {
		l, err := transport.TCP{}.Listen(net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no port of %s (%s) is free: %w", config.TaskManagerRPCPort.Key(), ports, last)
}

// newID names this life of the process: what restarts has another ID, so that
// nobody takes the one for the other.
func newID(name string) (ids.TaskManagerID, error) {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("name the TaskManager: set %s: %w", config.TaskManagerResourceID.Key(), err)
		}
		name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	unique := make([]byte, 3)
	if _, err := rand.Read(unique); err != nil {
		return "", fmt.Errorf("name the TaskManager: %w", err)
	}
	return ids.TaskManagerID(name + "-" + hex.EncodeToString(unique)), nil
}

func health(ctx context.Context, c *config.Config) error {
	ports := config.TaskManagerRPCPort.Get(c)
	if ports.First == 0 {
		return fmt.Errorf("set %s to a port: with 0 the system chose one that nobody knows", config.TaskManagerRPCPort.Key())
	}
	host := config.TaskManagerBindHost.Get(c)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	var last error
	for port := ports.First; port <= ports.Last; port++ {
		if last = runtime.CheckHealth(ctx, net.JoinHostPort(host, strconv.Itoa(port))); last == nil {
			return nil
		}
	}
	return last
}
