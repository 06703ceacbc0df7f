package localcluster

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/config"
)

// bucket is the S3 server's one bucket.
const bucket = "weir"

// configuration is what all processes of the cluster share: what makes it
// local, then what the user overrides.
func (r *record) configuration(dir string) (*config.Config, error) {
	storage := func(name string) string { return fileURI(filepath.Join(dir, name)) }
	settings := []string{
		config.TaskManagerSlots.Key() + "=" + strconv.Itoa(r.Slots),
		config.HighAvailabilityStorageDir.Key() + "=" + storage("ha"),
	}
	if r.S3 {
		settings = append(settings,
			config.S3Endpoint.Key()+"=http://"+r.find(s3Name).Address,
			config.S3AccessKey.Key()+"="+r.S3Access,
			config.S3SecretKey.Key()+"="+r.S3Secret,
			config.S3PathStyleAccess.Key()+"=true",
		)
		storage = func(name string) string { return "s3://" + bucket + "/" + name }
	}
	settings = append(settings,
		config.CheckpointDir.Key()+"="+storage("checkpoints"),
		config.SavepointDir.Key()+"="+storage("savepoints"),
	)
	c, err := config.Load("", settings)
	if err != nil {
		return nil, fmt.Errorf("configure cluster: %w", err)
	}
	// An override's error stays as it is: it names the key.
	c, err = c.With(r.Overrides)
	if err != nil {
		return nil, err
	}
	if jobManager := r.find(jobManagerName); jobManager != nil {
		_, port, err := net.SplitHostPort(jobManager.Address)
		if err != nil {
			return nil, fmt.Errorf("configure cluster: %w", err)
		}
		if c, err = c.With([]string{config.JobManagerRPCPort.Key() + "=" + port}); err != nil {
			return nil, fmt.Errorf("configure cluster: %w", err)
		}
	}
	return c, nil
}

// fileURI names a directory; what is special in a URI is escaped.
func fileURI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// writeConfig writes the configuration file. Keys are not nested, and values
// are quoted as in JSON, which is YAML too.
func writeConfig(dir string, c *config.Config) error {
	var text strings.Builder
	text.WriteString("# Written by flinkctl cluster start, which overwrites it.\n")
	values := c.Map()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%s: %s\n", key, strconv.Quote(values[key]))
	}
	if err := replaceFile(filepath.Join(dir, configFile), []byte(text.String())); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
