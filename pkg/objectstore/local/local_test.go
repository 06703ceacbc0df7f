package local_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/local"
	"github.com/weirstream/weir/pkg/objectstore/storetest"
)

func newStore(t *testing.T, dir string) *local.Store {
	t.Helper()
	store, err := local.New(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		return newStore(t, filepath.Join(t.TempDir(), "made", "when", "needed"))
	}, storetest.Options{})
}

// I4: nothing stays behind, hidden files and empty directories included.
func TestNothingStaysBehind(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	etag, err := store.PutIf(t.Context(), "jobs/1/record", []byte("a"), objectstore.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutIf(t.Context(), "jobs/1/record", []byte("b"), objectstore.IfMatch(etag)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutIf(t.Context(), "jobs/2/record", []byte("b"), objectstore.IfMatch(etag)); !errors.Is(err, objectstore.ErrPrecondition) {
		t.Fatal(err)
	}
	broken := errors.New("broken on purpose")
	err = store.Put(t.Context(), "chk-1/half", func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "jobs/1/record"); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if path != root {
			t.Errorf("%s stays behind", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A killed process leaves temporary files. They are removed for dead names only.
func TestDiscardStaged(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	var staged []string
	for _, name := range []string{"chk-1/1.1-0.0.0", "chk-1/2.1-0.0.0", "chk-2/1.1-0.0.0"} {
		err := store.Put(t.Context(), name, func(w io.Writer) error {
			if _, err := w.Write([]byte("x")); err != nil {
				return err
			}
			// What the process would leave if it was killed here.
			found, err := filepath.Glob(filepath.Join(root, filepath.Dir(name), ".tmp-*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("temporary files %v, error %v", found, err)
			}
			staged = append(staged, found[0])
			return errors.New("killed")
		})
		if err == nil {
			t.Fatal("Put succeeded")
		}
	}
	for _, path := range staged {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var asked []string
	removed, err := store.DiscardStaged(t.Context(), "chk-", func(name string) bool {
		asked = append(asked, name)
		return strings.Contains(name, "/1.")
	})
	if err != nil || removed != 2 {
		t.Errorf("removed %d, error %v, want 2", removed, err)
	}
	if got := strings.Join(asked, " "); got != "chk-1/1.1-0.0.0 chk-1/2.1-0.0.0 chk-2/1.1-0.0.0" {
		t.Errorf("asked for %s", got)
	}
	left, err := filepath.Glob(filepath.Join(root, "*", ".tmp-*"))
	if err != nil || len(left) != 1 || left[0] != staged[1] {
		t.Errorf("left %v, error %v", left, err)
	}
}

// A swap waits for the lock that another process holds, no longer than its
// context, and changes nothing then.
func TestSwapWaitsForLock(t *testing.T) {
	root := t.TempDir()
	store := newStore(t, root)
	etag, err := store.PutIf(t.Context(), "record", []byte("a"), objectstore.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(root, ".lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = store.PutIf(ctx, "record", []byte("b"), objectstore.IfMatch(etag))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("swap under a foreign lock: %v", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutIf(t.Context(), "record", []byte("b"), objectstore.IfMatch(etag)); err != nil {
		t.Errorf("swap after the lock was released: %v", err)
	}
}

func TestRelativeDirectoryIsRefused(t *testing.T) {
	if _, err := local.New("some/dir", "some/dir"); err == nil {
		t.Error("a relative directory was accepted")
	}
}

func TestCheckNamesDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	err := newStore(t, filepath.Join(file, "below")).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name %s", err, file)
	}
}
