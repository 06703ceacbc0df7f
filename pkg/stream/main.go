package stream

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/executor"
	"github.com/weirstream/weir/pkg/transport"
)

// Environment variables by which a program is told what to be. Whoever starts
// it sets them; a user does not.
const (
	// ModeVariable is unset for direct mode.
	ModeVariable = "WEIR_MODE"
	// GraphMode writes the JobGraph to the descriptor in GraphFDVariable.
	GraphMode = "graph"
	// ExecutorMode runs subtasks for a TaskManager.
	ExecutorMode = "executor"
	// GraphFDVariable is the number of an open file descriptor.
	GraphFDVariable = "WEIR_GRAPH_FD"
)

// exitUnusable is the exit code of a program that builds no graph: running it
// again changes nothing.
const exitUnusable = 2

// Main builds the job and runs it the way it is asked to, then exits. It is
// the last thing a program's main function calls.
//
// Started by hand (go run ./examples/flights), the job runs in this process on
// an embedded cluster, with checkpoints on local disk and progress on stderr;
// an interrupt cancels it. What it prints goes to stdout. The exit code is 0
// if it finished, 130 if it was interrupted. Two flags are added to the program's own: -parallelism N and, any number of times,
// -D key=value for the configuration.
//
// flinkctl submit starts the program to learn its graph, and TaskManagers
// start it to run its subtasks. It is then given the arguments behind the --
// of the command line, and must build the same graph each time: build must not
// depend on the clock, on random numbers or on the host, and it must not read
// the input.
//
// Main parses the flags of package flag before it calls build, unless the
// program has done so; flags are to be defined before.
func Main(name string, build func(env *Env) error) {
	p := process{
		name: name, build: build, getenv: os.Getenv,
		flags: flag.CommandLine, args: os.Args[1:], parsed: flag.Parsed(), stdout: os.Stdout, stderr: os.Stderr,
	}
	os.Exit(p.run())
}

// process is what Main needs of the operating system's process.
type process struct {
	name   string
	build  func(env *Env) error
	getenv func(string) string
	flags  *flag.FlagSet
	args   []string
	parsed bool // the program has parsed its flags
	stdout io.Writer
	stderr io.Writer
}

// run returns the exit code.
func (p *process) run() int {
	mode := p.getenv(ModeVariable)
	var options directOptions
	if !p.parsed {
		if mode == "" {
			options.register(p.flags)
		}
		if err := p.flags.Parse(p.args); err != nil { // flag.CommandLine exits instead
			return exitUnusable
		}
	}
	program, err := p.program()
	if err != nil {
		if mode == ExecutorMode { // it could when it was submitted
			return p.fail(executor.ExitUnusable, err)
		}
		return p.fail(exitUnusable, err)
	}
	switch mode {
	case "":
		return runDirect(p, program, options)
	case GraphMode:
		if err := p.writeGraph(program); err != nil {
			return p.fail(exitUnusable, err)
		}
		return 0
	case ExecutorMode:
		return runExecutor(program)
	}
	return p.fail(exitUnusable, fmt.Errorf("%s=%q: unset it to run the job here; flinkctl and TaskManagers set it to %q or %q",
		ModeVariable, mode, GraphMode, ExecutorMode))
}

func (p *process) program() (*operator.Program, error) {
	if p.build == nil {
		return nil, errors.New("stream.Main was given no build function")
	}
	env := NewEnv(p.name)
	if err := p.build(env); err != nil {
		return nil, err
	}
	return env.Build()
}

// fail prints what went wrong as one line that starts with the job's name.
func (p *process) fail(code int, err error) int {
	fmt.Fprintf(p.stderr, "%s: %v\n", p.name, err)
	return code
}

// writeGraph sends the graph to whoever started the program. It has a
// descriptor of its own, because programs print to stdout.
func (p *process) writeGraph(program *operator.Program) error {
	text := p.getenv(GraphFDVariable)
	fd, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("%s=%q: want the number of an open file descriptor", GraphFDVariable, text)
	}
	description := graph.ToProto(program.Graph)
	// A cluster that speaks another version refuses the program at submission, not when its executors start.
	description.WireVersion = transport.WireVersion
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(description)
	if err != nil {
		return fmt.Errorf("encode graph: %w", err)
	}
	f := os.NewFile(uintptr(fd), "graph")
	if f == nil {
		return fmt.Errorf("%s=%d: not an open file descriptor", GraphFDVariable, fd)
	}
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write graph to file descriptor %d: %w", fd, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close file descriptor %d after the graph: %w", fd, err)
	}
	return nil
}

// directOptions are the flags that direct mode adds to the program's own.
type directOptions struct {
	// parallelism is 0 if it was not given.
	parallelism int
	// configuration are the values of -D.
	configuration settingList
}

// register defines the flags, unless the program has its own of that name.
func (o *directOptions) register(flags *flag.FlagSet) {
	if flags.Lookup("parallelism") == nil {
		flags.IntVar(&o.parallelism, "parallelism", 0, "run each operator in `N` subtasks (default 1)")
	}
	if flags.Lookup("D") == nil {
		flags.Var(&o.configuration, "D", "set a configuration option as `key=value`; may be repeated")
	}
}

// settingList collects key=value flags.
type settingList []string

// String implements flag.Value.
func (l *settingList) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *settingList) Set(v string) error {
	if k, _, ok := strings.Cut(v, "="); !ok || k == "" {
		return errors.New("want key=value")
	}
	*l = append(*l, v)
	return nil
}
