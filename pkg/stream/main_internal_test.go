package stream

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/pb"
)

// testProcess is a process with a flag of its own, --n.
func testProcess(env map[string]string, args ...string) (*process, *bytes.Buffer) {
	stderr := &bytes.Buffer{}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(stderr)
	n := flags.Uint64("n", 10, "records")
	return &process{
		name: "test", getenv: func(k string) string { return env[k] }, flags: flags, args: args, stderr: stderr,
		build: func(env *Env) error {
			To(From(env, "numbers", datagen.Sequence(*n)), "out", blackhole.Sink[uint64]())
			return nil
		},
	}, stderr
}

func TestGraphMode(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd, err := unix.Dup(int(w.Fd())) // the process closes what it is given
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p, stderr := testProcess(map[string]string{ModeVariable: GraphMode, GraphFDVariable: fmt.Sprint(fd)}, "--n", "77")
	if code := p.run(); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var m pb.JobGraph
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	g, err := graph.FromProto(&m)
	if err != nil {
		t.Fatal(err)
	}
	op, ok := g.Operator("numbers")
	if !ok || g.Name != "test" || !strings.Contains(fmt.Sprint(op.Options), "{records 77}") {
		t.Errorf("graph %+v", g)
	}
}

func TestGraphModeRefuses(t *testing.T) {
	graphMode := map[string]string{ModeVariable: GraphMode, GraphFDVariable: "3"}
	tests := []struct {
		name  string
		env   map[string]string
		args  []string
		build func(*Env) error
		want  string
	}{
		{"error of the program", graphMode, nil, func(*Env) error { return errors.New("no such airport") }, "test: no such airport\n"},
		{"mistake in the graph", graphMode, nil, func(*Env) error { return nil }, "test: job has no source: add one with stream.From\n"},
		{"no build function", graphMode, nil, nil, "no build function"},
		{"unknown flag", graphMode, []string{"--parallelism", "3"}, nil, "flag provided but not defined"},
		{"no descriptor", map[string]string{ModeVariable: GraphMode}, nil, okBuild, `WEIR_GRAPH_FD=""`},
		{"closed descriptor", map[string]string{ModeVariable: GraphMode, GraphFDVariable: "999999"}, nil, okBuild, "999999"},
		{"unknown mode", map[string]string{ModeVariable: "turbo"}, nil, okBuild, `WEIR_MODE="turbo": unset it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, stderr := testProcess(tt.env, tt.args...)
			p.build = tt.build
			if code := p.run(); code != exitUnusable {
				t.Errorf("exit code %d, want %d", code, exitUnusable)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("stderr %q does not say %q", stderr, tt.want)
			}
		})
	}
}

func okBuild(env *Env) error {
	To(From(env, "numbers", datagen.Sequence(1)), "out", blackhole.Sink[uint64]())
	return nil
}

// Direct mode runs the job here, and its exit code says how it ended.
func TestDirectMode(t *testing.T) {
	p, stderr := testProcess(nil, "--n", "100", "--parallelism", "2", "-D", "execution.checkpointing.interval=100ms")
	if code := p.run(); code != 0 || !strings.Contains(stderr.String(), "test: FINISHED") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	p, stderr = testProcess(nil, "-D", "restart-strategy.type=none")
	p.build = func(env *Env) error {
		numbers := Map(From(env, "numbers", datagen.Sequence(10)), func(n uint64) (uint64, error) {
			if n == 5 {
				panic("five")
			}
			return n, nil
		})
		To(numbers, "out", blackhole.Sink[uint64]())
		return nil
	}
	if code := p.run(); code != exitFailed || !strings.Contains(stderr.String(), "panic: five") || !strings.Contains(stderr.String(), "goroutine") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	p, stderr = testProcess(nil, "-D", "execution.checkpointing.intervall=1s")
	if code := p.run(); code != exitFailed || !strings.Contains(stderr.String(), "execution.checkpointing.interval") {
		t.Errorf("exit code %d, stderr %q does not name the nearest key", code, stderr)
	}
}

// Direct mode adds its flags to the program's, and leaves the program's own
// of the same name alone.
func TestDirectFlags(t *testing.T) {
	var o directOptions
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.register(flags)
	if err := flags.Parse([]string{"-D", "a=1", "--parallelism", "3", "-D", "b=x=y"}); err != nil {
		t.Fatal(err)
	}
	if got := o.configuration.String(); got != "a=1,b=x=y" || o.parallelism != 3 {
		t.Errorf("-D %s, parallelism %d", got, o.parallelism)
	}
	if err := flags.Parse([]string{"-D", "a"}); err == nil {
		t.Error("-D without a value was taken")
	}
	own := flag.NewFlagSet("test", flag.ContinueOnError)
	mine := own.Int("parallelism", 7, "mine")
	var o2 directOptions
	o2.register(own)
	if err := own.Parse([]string{"--parallelism", "8"}); err != nil || *mine != 8 || o2.parallelism != 0 {
		t.Errorf("error %v, program's flag %d, Main's %d", err, *mine, o2.parallelism)
	}
}
