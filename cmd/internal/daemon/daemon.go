package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/version"
	"github.com/weirstream/weir/pkg/config"
)

// Program is one of the mains.
type Program struct {
	// Name is the binary's, as in "jobmanager"; Title as in texts, "JobManager".
	Name, Title string
	// Long describes the program in its help, Example shows how to start it.
	Long, Example string
	// Serve runs until ctx ends.
	Serve func(ctx context.Context, p Process) error
	// Health says whether the process that this configuration describes
	// serves.
	Health func(ctx context.Context, c *config.Config) error
}

// Process is what Serve gets.
type Process struct {
	Config *config.Config
	Log    *zap.Logger
	// Ready says where the process listens, once it serves: on stdout and,
	// if wanted, in the ready file.
	Ready func(address string) error
}

// flags are those that all verbs take.
type flags struct {
	config    string
	overrides []string
}

func (f *flags) load() (*config.Config, error) { return config.Load(f.config, f.overrides) }

// Main runs the program and exits. An interrupt or SIGTERM ends it in order.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.command().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		stop()
		os.Exit(1)
	}
}

func (p Program) command() *cobra.Command {
	var common flags
	var readyFile, logFormat string
	root := &cobra.Command{
		Use: p.Name, Short: "Weir's " + p.Title, Long: p.Long, Example: p.Example,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := common.load()
			if err != nil {
				return err
			}
			return p.serve(cmd.Context(), c, readyFile, logFormat, cmd.OutOrStdout())
		},
	}
	root.PersistentFlags().StringVar(&common.config, "config", "", "YAML `file` with the configuration")
	root.PersistentFlags().StringArrayVarP(&common.overrides, "define", "D", nil, "set `key=value` over the file's; may be repeated")
	root.Flags().StringVar(&readyFile, "ready-file", "", "write address and PID as JSON to this `file` once the process serves")
	root.Flags().StringVar(&logFormat, "log-format", "console", "form of the log: console or json")
	root.AddCommand(
		&cobra.Command{
			Use: "health", Short: "Exit with 0 if the " + p.Title + " of this configuration serves",
			Example: "  " + p.Name + " health --config conf/config.yaml",
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := common.load()
				if err != nil {
					return err
				}
				return p.Health(cmd.Context(), c)
			},
		},
		&cobra.Command{
			Use: "version", Short: "Print the version", Example: "  " + p.Name + " version", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
				return err
			},
		},
	)
	return root
}

func (p Program) serve(ctx context.Context, c *config.Config, readyFile, logFormat string, stdout io.Writer) (err error) {
	log, closeLog, err := newLogger(c, p.Name, logFormat)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	if readyFile != "" {
		defer func() {
			if removeErr := os.Remove(readyFile); removeErr != nil && !errors.Is(removeErr, os.ErrNotExist) {
				err = errors.Join(err, removeErr)
			}
		}()
	}
	return p.Serve(ctx, Process{Config: c, Log: log, Ready: func(address string) error {
		if readyFile != "" {
			if err := writeReady(readyFile, address); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(stdout, "%s ready at %s\n", p.Title, address)
		return err
	}})
}

// ready is the content of a ready file.
type ready struct {
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

// writeReady makes the file appear with all of its content.
func writeReady(name, address string) error {
	content, err := json.Marshal(ready{Address: address, PID: os.Getpid()})
	if err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".ready-*")
	if err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	_, err = temporary.Write(append(content, '\n'))
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write ready file: %w", errors.Join(err, os.Remove(temporary.Name())))
	}
	return nil
}
