package jobbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compile builds the package for the cluster and, where that differs, for this
// host. It returns the binary to upload and the one to run here.
func compile(ctx context.Context, request Request) (binary, local string, err error) {
	binary = filepath.Join(request.Dir, "job")
	if err := goBuild(ctx, request, request.Platform, binary); err != nil {
		return "", "", err
	}
	if request.Platform == Host() {
		return binary, binary, nil
	}
	local = filepath.Join(request.Dir, "job-here")
	if err := goBuild(ctx, request, Host(), local); err != nil {
		return "", "", err
	}
	return binary, local, nil
}

func goBuild(ctx context.Context, request Request, platform Platform, output string) error {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return &Error{Message: "Go is not installed here, so that " + request.Program + " cannot be compiled",
			Hint: "install Go, or submit a binary built with CGO_ENABLED=0 for " + platform.String()}
	}
	request.Progress(fmt.Sprintf("building %s for %s", request.Program, platform))
	dir, target := buildPlace(request.Program)
	// Without the commit in it a binary only changes when the code does, so that it is uploaded once.
	cmd := exec.CommandContext(ctx, goCommand, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", output, target)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Arch)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("build %s: %w", request.Program, context.Cause(ctx))
	case err != nil:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return fmt.Errorf("build %s: %w", request.Program, err)
		}
		return &Error{Message: fmt.Sprintf("%s does not compile", request.Program), Output: printed.String()}
	}
	return checkCompiled(request.Program, output)
}

// checkCompiled notices that Go built no program: of a package that is not
// main it keeps nothing, or an archive.
func checkCompiled(program, output string) error {
	file, err := os.Open(output)
	if err == nil {
		head := make([]byte, len(archiveMagic))
		_, err = file.Read(head)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err == nil && string(head) != archiveMagic {
			return nil
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read what was built: %w", err)
	}
	return &Error{Message: program + " is not a program", Hint: "give a package with the name main"}
}

// archiveMagic starts the file that Go builds of a package that is not main.
const archiveMagic = "!<arch>\n"

// buildPlace says where to run Go and what to name there. Go resolves paths
// within the module of its working directory only, so a package of another
// module is built in its own directory.
func buildPlace(program string) (dir, target string) {
	if !isFilePath(program) {
		if _, err := os.Stat(program); err != nil {
			return "", program // an import path
		}
		// "examples/flights" means an import path to Go, and a directory to who typed it.
		program = "." + string(filepath.Separator) + program
	}
	place, file := program, "."
	if strings.HasSuffix(program, ".go") {
		place, file = filepath.Dir(program), filepath.Base(program)
	}
	here, err := os.Getwd()
	if err != nil {
		return place, file
	}
	there, err := filepath.Abs(place)
	if err != nil || moduleRoot(here) == moduleRoot(there) && moduleRoot(here) != "" {
		return "", program
	}
	return place, file
}

// moduleRoot is the nearest directory with a go.mod, or "".
func moduleRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}
