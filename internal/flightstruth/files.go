package flightstruth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files are the committed files of an output directory with their content, by
// name relative to it.
type Files map[string][]byte

// Committed reads the committed files below dir, which need not exist yet.
// What the job has not committed has a name that starts with a dot.
func Committed(dir string) (Files, error) {
	files := Files{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not there yet, or committed under its final name meanwhile
		}
		if err != nil {
			return err
		}
		if name != dir && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(relative)] = content
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return files, nil
}

// Lines counts the lines of all files.
func (f Files) Lines() int {
	n := 0
	for _, content := range f {
		n += bytes.Count(content, []byte("\n"))
	}
	return n
}

// Unchanged fails when a file of f is missing in later or has another content
// there: what is committed never changes.
func (f Files) Unchanged(later Files) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		content, ok := later[name]
		switch {
		case !ok:
			return fmt.Errorf("the committed file %s has disappeared", name)
		case !bytes.Equal(content, f[name]):
			return fmt.Errorf("the committed file %s has changed", name)
		}
	}
	return nil
}
