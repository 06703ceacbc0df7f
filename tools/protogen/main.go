// Command protogen turns Weir's .proto files into Go. It needs nothing but Go:
// the compiler is a library and the plugins are tools, all pinned in
// tools/go.mod.
//
//	go run -C tools ./protogen            # what `make proto` does
//	go run -C tools ./protogen -out DIR   # the same tree under DIR, to compare
//
// Every proto/**/*.proto is compiled. Where its Go file goes follows from its
// go_package option; a file that declares a service also gets its gRPC stubs
// there.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// goModule is cut off go_package to find where a generated file goes.
const goModule = "github.com/weirstream/weir"

// generatedSuffix marks the files that belong to this program: it removes
// those that no .proto file accounts for any more.
const generatedSuffix = ".pb.go"

func main() {
	root := flag.String("root", "..", "directory that holds proto/")
	out := flag.String("out", "", "directory to write below; empty means root")
	flag.Parse()
	if *out == "" {
		*out = *root
	}
	if err := run(context.Background(), *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, out string) error {
	protoDir := filepath.Join(root, "proto")
	names, err := listProtos(protoDir)
	if err != nil {
		return err
	}
	files, err := compile(ctx, protoDir, names)
	if err != nil {
		return err
	}
	generated, err := generate(ctx, files)
	if err != nil {
		return err
	}
	return write(out, generated)
}

// listProtos returns the names of all .proto files as import statements spell
// them: relative to dir, with slashes, sorted.
func listProtos(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || filepath.Ext(path) != ".proto" {
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		names = append(names, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list proto files: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no .proto file below %s", dir)
	}
	slices.Sort(names)
	return names, nil
}

func compile(ctx context.Context, dir string, names []string) (linker.Files, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		// Comments of the .proto files become doc comments of the Go code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	return files, nil
}

// generate runs the plugins and returns the files they made, by their path
// below the repository's root.
func generate(ctx context.Context, files linker.Files) (map[string]string, error) {
	var all, services []string
	for _, file := range files {
		all = append(all, file.Path())
		if file.Services().Len() > 0 {
			services = append(services, file.Path())
		}
	}
	descriptors := withImports(files)
	generated := map[string]string{}
	for _, step := range []struct {
		plugin string
		files  []string
	}{{"protoc-gen-go", all}, {"protoc-gen-go-grpc", services}} {
		if len(step.files) == 0 {
			continue
		}
		response, err := runPlugin(ctx, step.plugin, &pluginpb.CodeGeneratorRequest{
			FileToGenerate: step.files,
			Parameter:      proto.String("module=" + goModule),
			ProtoFile:      descriptors,
		})
		if err != nil {
			return nil, err
		}
		for _, file := range response.GetFile() {
			generated[file.GetName()] = file.GetContent()
		}
	}
	return generated, nil
}

// withImports returns the descriptors of files and of all they import, every
// file after its imports, as a plugin expects them.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var descriptors []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var visit func(file protoreflect.FileDescriptor)
	visit = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := range imports.Len() {
			visit(imports.Get(i).FileDescriptor)
		}
		descriptors = append(descriptors, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		visit(file)
	}
	return descriptors
}

func runPlugin(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: encode request: %w", plugin, err)
	}
	// The working directory is this module's, by -C tools: its go.mod names the tool's version.
	command := exec.CommandContext(ctx, "go", "tool", plugin)
	command.Stdin = bytes.NewReader(input)
	var output, diagnostics bytes.Buffer
	command.Stdout, command.Stderr = &output, &diagnostics
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", plugin, err, strings.TrimSpace(diagnostics.String()))
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output.Bytes(), response); err != nil {
		return nil, fmt.Errorf("%s: decode response: %w", plugin, err)
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s: %s", plugin, response.GetError())
	}
	return response, nil
}

// write puts the generated files below out and removes leftovers of .proto
// files that are gone from the directories it writes to. A file whose content
// is right is not touched, so that builds stay cached.
func write(out string, generated map[string]string) error {
	directories := map[string]bool{}
	for name, content := range generated {
		path := filepath.Join(out, filepath.FromSlash(name))
		directories[filepath.Dir(path)] = true
		if old, err := os.ReadFile(path); err == nil && string(old) == content {
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("compare %s: %w", path, err)
		}
		if err := replaceFile(path, content); err != nil {
			return err
		}
	}
	for directory := range directories {
		entries, err := os.ReadDir(directory)
		if err != nil {
			return fmt.Errorf("look for leftovers: %w", err)
		}
		for _, entry := range entries {
			path := filepath.Join(directory, entry.Name())
			name, err := filepath.Rel(out, path)
			if err != nil {
				return fmt.Errorf("look for leftovers: %w", err)
			}
			if _, ok := generated[filepath.ToSlash(name)]; ok || !strings.HasSuffix(path, generatedSuffix) {
				continue
			}
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove leftover: %w", err)
			}
		}
	}
	return nil
}

// replaceFile writes beside path and renames, so that a build which runs at
// the same time sees the old file or the new one, whole.
func replaceFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	return nil
}
