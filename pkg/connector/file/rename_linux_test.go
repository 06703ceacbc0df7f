package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// The way for file systems without links never replaces a file either.
func TestRenameNoReplace(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, path := range []string{a, b} {
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := renameNoReplace(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want one that the file exists", err)
	}
	if got, err := os.ReadFile(b); err != nil || string(got) != b {
		t.Errorf("b has %q, error %v", got, err)
	}
	if err := renameNoReplace(a, filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(a); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a after its rename: %v", err)
	}
}
