package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// s3Secret is the secret key of the check's own S3 server.
const s3Secret = "composecheck"

// composeCluster is a cluster of its own: other project name and ports than
// one that make cluster-up may have started.
type composeCluster struct {
	// command is docker compose or docker-compose.
	command []string
	project string
	// jobManager and s3 are the published addresses.
	jobManager, s3 string
	environment    []string
}

// engineTimeout bounds the question whether there is an engine.
const engineTimeout = 20 * time.Second

func newComposeCluster(ctx context.Context) (*composeCluster, error) {
	asking, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if output, err := exec.CommandContext(asking, "docker", "info", "--format", "{{.ServerVersion}}").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("there is no Docker engine: docker info: %w: %s", err, strings.TrimSpace(string(output)))
	}
	c := &composeCluster{project: fmt.Sprintf("weir-e2e-%d", os.Getpid())}
	switch {
	case exec.CommandContext(asking, "docker", "compose", "version").Run() == nil:
		c.command = []string{"docker", "compose"}
	case exec.CommandContext(asking, "docker-compose", "version").Run() == nil:
		c.command = []string{"docker-compose"}
	default:
		return nil, errors.New("there is neither docker compose nor docker-compose")
	}
	var err error
	if c.jobManager, err = freeAddress(); err != nil {
		return nil, err
	}
	if c.s3, err = freeAddress(); err != nil {
		return nil, err
	}
	c.environment = append(os.Environ(), "WEIR_JOBMANAGER_PORT="+portOf(c.jobManager), "WEIR_S3_PORT="+portOf(c.s3), "WEIR_S3_SECRET="+s3Secret)
	return c, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// compose runs compose with the project's files and returns what it printed to stdout.
func (c *composeCluster) compose(ctx context.Context, args ...string) (string, error) {
	all := append(append([]string{}, c.command[1:]...), "--project-name", c.project, "--file", "deploy/docker-compose.yml")
	return c.exec(ctx, c.command[0], append(all, args...)...)
}

func (c *composeCluster) docker(ctx context.Context, args ...string) (string, error) {
	return c.exec(ctx, "docker", args...)
}

func (c *composeCluster) exec(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.environment
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (c *composeCluster) up(ctx context.Context, taskManagers int) error {
	// The images are there: make images builds them, from what make build left.
	_, err := c.compose(ctx, "up", "--detach", "--no-build", "--scale", "taskmanager="+strconv.Itoa(taskManagers))
	return err
}

// down removes the containers, the network and the volumes.
func (c *composeCluster) down(ctx context.Context) error {
	_, err := c.compose(ctx, "down", "--volumes", "--timeout", "5")
	return err
}

// showLogs prints what the processes logged, for the search of a failure's cause.
func (c *composeCluster) showLogs(ctx context.Context) {
	logs, err := c.compose(ctx, "logs", "--no-color", "--tail", "60")
	if err != nil {
		logs = err.Error()
	}
	fmt.Fprintln(os.Stderr, logs)
}

// containers are the IDs of a service's running containers.
func (c *composeCluster) containers(ctx context.Context, service string) ([]string, error) {
	printed, err := c.compose(ctx, "ps", "-q", service)
	if err != nil {
		return nil, err
	}
	return strings.Fields(printed), nil
}

// hostname is what a container is called on its network.
func (c *composeCluster) hostname(ctx context.Context, container string) (string, error) {
	printed, err := c.docker(ctx, "inspect", "--format", "{{.Config.Hostname}}", container)
	return strings.TrimSpace(printed), err
}
