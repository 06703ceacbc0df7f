package checkpointstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/memory"
)

// TestFilesGoToTheStoreAndBack, are verified on the way, and leave nothing
// when they are not what was stored.
func TestFilesGoToTheStoreAndBack(t *testing.T) {
	objects := memory.New("/base")
	store := checkpointstore.New(func(string) (objectstore.Store, error) { return objects, nil })
	dir := t.TempDir()
	content := bytes.Repeat([]byte("weir"), 100_000)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file := checkpointstore.SharedFile{Attempt: ids.AttemptID{Token: 1, Number: 1}, Checkpoint: 7, Subtask: ids.SubtaskID{Vertex: 1}}
	size := int64(len(content))
	if _, err := store.WriteShared(t.Context(), "/base", file, checkpointstore.FileContent(from, size+1)); err == nil {
		t.Error("a file that is shorter than its size was stored")
	}
	h, err := store.WriteShared(t.Context(), "/base", file, checkpointstore.FileContent(from, size))
	if err != nil || h.Size != size || h.SharedSince != 7 {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := store.FetchState(t.Context(), "/base", h, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if err := checkpointstore.VerifyFile(to, h); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(to, content[1:], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkpointstore.VerifyFile(to, h); !errors.Is(err, checkpointstore.ErrCorrupt) {
		t.Errorf("a file without its first byte: %v", err)
	}
	damaged, other := h, filepath.Join(dir, "other")
	damaged.CRC32C++
	if err := store.FetchState(t.Context(), "/base", damaged, other); !errors.Is(err, checkpointstore.ErrCorrupt) {
		t.Errorf("fetch of what was not stored: %v", err)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a fetch that failed left a file: %v", err)
	}
	if err := store.FetchState(t.Context(), "/base", h, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("fetch over a file: %v", err)
	}
	// What came in the handle becomes a file too.
	h.Name, h.Inline, h.Size, h.CRC32C = "", nil, 0, 0
	if err := store.FetchState(t.Context(), "/base", h, other); err != nil {
		t.Error(err)
	}
}
