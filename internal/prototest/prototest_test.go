package prototest

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's root as seen from this package.
const root = "../.."

// TestGeneratedCodeIsCurrent generates once more, elsewhere, and compares.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	out := t.TempDir()
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "run", "-C", "tools", "./protogen", "-root", repository, "-out", out)
	command.Dir = repository
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, output)
	}

	want, have := generatedFiles(t, out), map[string]string{}
	// Only directories below pkg hold generated code; the rest of the tree is not walked.
	for name, content := range generatedFiles(t, filepath.Join(repository, "pkg")) {
		have["pkg/"+name] = content
	}
	names := slices.Sorted(maps.Keys(want))
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		wantContent, wanted := want[name]
		haveContent, exists := have[name]
		switch {
		case !exists:
			t.Errorf("%s is missing: run `make proto` and commit the result", name)
		case !wanted:
			t.Errorf("%s belongs to no .proto file: run `make proto` and commit the result", name)
		case haveContent != wantContent:
			t.Errorf("%s is stale: run `make proto` and commit the result", name)
		}
	}
}

// generatedFiles returns the content of every *.pb.go file below dir by its slash path.
func generatedFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".pb.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)] = string(content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
