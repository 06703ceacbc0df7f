package jobbuild

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a module with one main package and returns its directory.
// Weir itself is not needed: graph mode is an agreement on a descriptor.
func program(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/job\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func makeJob(t *testing.T, program string, args ...string) (*Job, error) {
	t.Helper()
	return Make(context.Background(), Request{Program: program, Args: args, Environment: []string{"JOB_FLAVOUR=sweet"}, Platform: Host(), Dir: t.TempDir()})
}

// refused expects an *Error whose message and output contain the texts.
func refused(t *testing.T, err error, message, output string) {
	t.Helper()
	var refusal *Error
	if !errors.As(err, &refusal) {
		t.Fatalf("error is %v, want a refusal of the program", err)
	}
	if !strings.Contains(refusal.Message, message) || strings.Contains(refusal.Message, "\n") {
		t.Errorf("message is %q, want one line with %q", refusal.Message, message)
	}
	if !strings.Contains(refusal.Output, output) {
		t.Errorf("output is %q, want %q in it", refusal.Output, output)
	}
}

func TestRefusedPrograms(t *testing.T) {
	const head = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n"
	for _, test := range []struct{ name, source, message, output string }{
		{"does not compile", "package main\n\nfunc main() { return 1 }\n", "does not compile", "main.go:3:"},
		{"is no program", "package job\n", "is not a program", ""},
		{"ends without a graph", head + `func main() { fmt.Fprintln(os.Stdout, "hello") }`, "ended without building a graph", "hello"},
		{"says why it builds none", head + `func main() { fmt.Fprintln(os.Stderr, "job: operator 0 (map) has no UID"); os.Exit(2) }`,
			"builds no graph: job: operator 0 (map) has no UID", ""},
		{"panics", head + `func main() { fmt.Fprintln(os.Stderr, "so far"); panic("boom") }`, "builds no graph: panic: boom", "goroutine 1"},
		{"fails without a word", head + `func main() { _ = fmt.Sprint(); os.Exit(3) }`, "exit status 3", ""},
		{"writes something else", head + `func main() { fmt.Fprint(os.NewFile(3, "graph"), "hello") }`, "cannot be read", ""},
		{"writes a graph with two operators of one UID", head + `func main() { fmt.Fprint(os.NewFile(3, "graph"), "\x1a\x0b\n\x01a\x12\x06source\x1a\x0b\n\x01a\x12\x06source") }`, `two operators have the UID "a"`, ""},
		{"refuses its flags", "package main\n\nimport \"flag\"\n\nfunc main() { flag.Parse() }\n", "flag provided but not defined: -rate", "Usage of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := makeJob(t, program(t, test.source), "-rate=3")
			refused(t, err, test.message, test.output)
		})
	}
}

func TestMakeOfAPackage(t *testing.T) {
	dir := program(t, `package main

import (
	"fmt"
	"os"
)

func main() {
	if os.Getenv("WEIR_MODE") != "graph" || os.Getenv("WEIR_GRAPH_FD") != "3" || os.Getenv("JOB_FLAVOUR") != "sweet" || os.Args[1] != "-x" {
		os.Exit(1)
	}
	fmt.Println("what is printed is no graph")
	fmt.Fprint(os.NewFile(3, "graph"), "\n\x03job\x1a\x0b\n\x01a\x12\x06source")
}
`)
	job, err := makeJob(t, dir, "-x")
	if err != nil {
		t.Fatal(err)
	}
	if job.Graph.GetName() != "job" || len(job.Graph.GetOperators()) != 1 {
		t.Errorf("graph is %v", job.Graph)
	}
	found, err := inspect(job.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if found != (inspected{platform: Host(), isGo: true}) {
		t.Errorf("built %+v, want a static Go binary for %v", found, Host())
	}
	again, err := makeJob(t, dir, "-x")
	if err != nil {
		t.Fatal(err)
	}
	if again.SHA256 != job.SHA256 || again.Size != job.Size {
		t.Error("the same package gave two binaries: each submission would upload one")
	}

	binary := filepath.Join(t.TempDir(), "job")
	content, err := os.ReadFile(job.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, content, 0o700); err != nil {
		t.Fatal(err)
	}
	if job, err = makeJob(t, binary, "-x"); err != nil || job.SHA256 != again.SHA256 || job.Binary != binary {
		t.Errorf("prebuilt binary gave %v, %v", job, err)
	}
	if err := os.Chmod(binary, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = makeJob(t, binary, "-x")
	refused(t, err, "may not be executed", "")
	_, err = Make(context.Background(), Request{Program: binary, Platform: Platform{OS: "linux", Arch: "s390x"}, Dir: t.TempDir()})
	refused(t, err, "is built for "+Host().String()+", the cluster runs on linux/s390x", "")
}

func TestMakeForAnotherPlatform(t *testing.T) {
	dir := program(t, `package main

import (
	"fmt"
	"os"
)

func main() { fmt.Fprint(os.NewFile(3, "graph"), "\n\x03job\x1a\x0b\n\x01a\x12\x06source") }
`)
	other := Platform{OS: "linux", Arch: "arm64"}
	if other == Host() {
		other.Arch = "amd64"
	}
	job, err := Make(context.Background(), Request{Program: dir, Platform: other, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := inspect(job.Binary); err != nil || found.platform != other {
		t.Errorf("built %+v, %v; want %v", found, err, other)
	}
	if job.Graph.GetName() != "job" {
		t.Errorf("graph is %v", job.Graph)
	}
	// The same binary cannot tell its graph here.
	_, err = Make(context.Background(), Request{Program: job.Binary, Platform: other, Dir: t.TempDir()})
	refused(t, err, "cannot be asked for its graph on "+Host().String(), "")
}

func TestRefusedFiles(t *testing.T) {
	_, err := makeJob(t, "./no/such/place")
	refused(t, err, "there is no program", "")
	script := filepath.Join(t.TempDir(), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = makeJob(t, script)
	refused(t, err, "neither a Go package nor a binary", "")
	damaged := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(damaged, []byte("\x7fELFwhatever"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = makeJob(t, damaged)
	refused(t, err, "is damaged", "")
}

func TestPlatform(t *testing.T) {
	for text, want := range map[string]Platform{"linux/amd64": {"linux", "amd64"}, "linux": {}, "/amd64": {}, "linux/": {}} {
		got, err := ParsePlatform(text)
		if got != want || (err == nil) != (want != Platform{}) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}
