package main

import (
	"fmt"
	"net"

	"github.com/weirstream/weir/pkg/config"
)

// advertise fills in how other hosts reach this one when nobody said: a
// TaskManager that listens on all interfaces is reached by its host's name.
// In a container that is the container's, so that any number of them can share
// one configuration.
func advertise(c *config.Config, hostname func() (string, error)) (*config.Config, error) {
	bind := net.ParseIP(config.TaskManagerBindHost.Get(c))
	if config.TaskManagerHost.IsSet(c) || bind == nil || !bind.IsUnspecified() {
		return c, nil
	}
	name, err := hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host's name, set %s instead: %w", config.TaskManagerHost.Key(), err)
	}
	return c.With([]string{config.TaskManagerHost.Key() + "=" + name})
}
