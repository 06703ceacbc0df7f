package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// jobManager is the address of the cluster's JobManager.
func (b *bench) jobManager(ctx context.Context, dir string) (string, error) {
	out, err := b.ctl(ctx, "cluster", "status", "--dir", dir, "-o", "json")
	if err != nil {
		return "", err
	}
	var processes []struct{ Role, Address string }
	if err := json.Unmarshal([]byte(out), &processes); err != nil {
		return "", fmt.Errorf("read cluster status: %w", err)
	}
	for _, p := range processes {
		if p.Role == "jobmanager" {
			return p.Address, nil
		}
	}
	return "", errors.New("the cluster has no JobManager")
}
