package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// record is the content of cluster.json.
type record struct {
	// Version is the format's.
	Version int `json:"version"`
	// TaskManagers, Slots, S3 and Overrides are what was asked for.
	TaskManagers int      `json:"taskmanagers"`
	Slots        int      `json:"slots"`
	S3           bool     `json:"s3"`
	Overrides    []string `json:"overrides"`
	// WorkingDirectory is where the cluster was first started: relative paths in
	// the arguments of jobs are below it, also when processes are started again.
	WorkingDirectory string `json:"working_directory"`
	// S3Access and S3Secret are the S3 server's keys, made when it is first started.
	S3Access string `json:"s3_access,omitempty"`
	S3Secret string `json:"s3_secret,omitempty"`
	// Processes are in the order in which they are started.
	Processes []process `json:"processes"`
}

// process is one process of the cluster, running or not.
type process struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Address is host:port and stays when the process is started again.
	Address string `json:"address"`
	// identity is zero when the process was stopped, or never started.
	Identity identity `json:"process"`
}

const recordVersion = 1

const (
	recordFile = "cluster.json"
	configFile = "config.yaml"
	lockFile   = "lock"
)

// errNoCluster says that a directory has never had a cluster.
var errNoCluster = errors.New("no cluster")

// readRecord reads cluster.json. The error matches errNoCluster when there is none.
func readRecord(dir string) (*record, error) {
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("read cluster: %s: %w", filepath.Join(dir, recordFile), err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("read cluster: %s has format %d, this flinkctl knows %d: stop the cluster with the flinkctl that started it",
			filepath.Join(dir, recordFile), r.Version, recordVersion)
	}
	return r, nil
}

// write replaces cluster.json whole, so that a reader never sees half of it.
func (r *record) write(dir string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write cluster: %w", err)
	}
	if err := replaceFile(filepath.Join(dir, recordFile), append(content, '\n')); err != nil {
		return fmt.Errorf("write cluster: %w", err)
	}
	return nil
}

// replaceFile writes a file that only its owner may read.
func replaceFile(name string, content []byte) error {
	temporary := name + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// find returns the process of that name, or nil.
func (r *record) find(name string) *process {
	for i := range r.Processes {
		if r.Processes[i].Name == name {
			return &r.Processes[i]
		}
	}
	return nil
}
