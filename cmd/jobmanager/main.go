// Command jobmanager is Weir's JobManager: it accepts jobs, coordinates them
// and their checkpoints, and serves flinkctl.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
	_ "time/tzdata" // images from scratch have no time zones

	"go.uber.org/zap"

	"github.com/weirstream/weir/cmd/internal/daemon"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/jobmanager"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime"
	"github.com/weirstream/weir/pkg/transport"
)

// healthTimeout bounds the health check: a JobManager that takes longer does
// not serve.
const healthTimeout = 5 * time.Second

func main() {
	daemon.Main(daemon.Program{
		Name: "jobmanager", Title: "JobManager",
		Long: `Runs the JobManager of a Weir cluster in the foreground.

It keeps what it must find again after a restart below
high-availability.storageDir, and without that in its working directory
(process.working-dir). Started again, it goes on with every job that had not
ended.`,
		Example: `  jobmanager --config conf/config.yaml
  jobmanager -D jobmanager.rpc.port=6123 -D high-availability.storageDir=s3://weir/ha`,
		Serve:  serve,
		Health: health,
	})
}

func serve(ctx context.Context, p daemon.Process) (err error) {
	port := config.JobManagerRPCPort.Get(p.Config)
	work, err := openWorkDir(p.Config, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	listener, err := transport.TCP{}.Listen(net.JoinHostPort(config.JobManagerBindHost.Get(p.Config), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	stores := &runtime.Stores{}
	defer stores.Close()
	jobManager, err := jobmanager.Open(ctx, jobmanager.Options{
		Config: p.Config, WorkDir: work.Path(), OpenStore: stores.Opener, Log: p.Log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := transport.Serve(listener, transport.Handlers{Coordination: jobManager, Client: jobManager})
	// The JobManager first: to its jobs, sessions that break are failures.
	defer func() { err = errors.Join(err, jobManager.Close(), server.Close()) }()
	if err := p.Ready(server.Address()); err != nil {
		return err
	}
	p.Log.Info("JobManager is ready", zap.String("address", server.Address()), zap.Stringer("configuration", p.Config))
	select {
	case <-ctx.Done():
		p.Log.Info("shutting down: running jobs go on with the next JobManager")
	case <-server.Done():
	}
	return nil
}

// openWorkDir opens the working directory. The one that nobody named is the
// same at each start, because jobs may be kept there.
func openWorkDir(c *config.Config, port int) (*runtime.WorkDir, error) {
	configured, temporary := config.WorkingDirectory.Get(c), config.TemporaryDirectory.Get(c)
	if configured == "" && port != 0 {
		if temporary == "" {
			temporary = os.TempDir()
		}
		configured = filepath.Join(temporary, fmt.Sprintf("weir-%d", os.Getuid()), fmt.Sprintf("jobmanager-%d", port))
	}
	return runtime.OpenWorkDir(configured, temporary, "jobmanager")
}

func health(ctx context.Context, c *config.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	address := net.JoinHostPort(config.JobManagerRPCAddress.Get(c), strconv.Itoa(config.JobManagerRPCPort.Get(c)))
	client, err := transport.DialJobManager(address, transport.DialOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	_, err = client.ClusterInfo(ctx, &pb.ClusterInfoRequest{})
	return err
}
