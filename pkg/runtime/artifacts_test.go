package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// artifacts is a source that counts, and fails as often as it is told.
type artifacts struct {
	mu       sync.Mutex
	content  map[string]string
	fetches  int
	failures int
}

func (a *artifacts) GetArtifact(_ context.Context, sum string) (io.ReadCloser, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fetches++
	if a.failures > 0 {
		a.failures--
		return nil, 0, errors.New("connection lost")
	}
	return io.NopCloser(strings.NewReader(a.content[sum])), int64(len(a.content[sum])), nil
}

func (a *artifacts) add(content string) string {
	sum := sha256.Sum256([]byte(content))
	if a.content == nil {
		a.content = map[string]string{}
	}
	a.content[hex.EncodeToString(sum[:])] = content
	return hex.EncodeToString(sum[:])
}

func TestArtifactIsFetchedOnceCheckedAndExecutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &artifacts{failures: 2}
		sum := source.add("binary")
		dir := t.TempDir()
		c, err := openArtifactCache(dir, 1<<20, 5, source, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				path, release, err := c.acquire(t.Context(), sum)
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%v, %v", info, err)
				}
			})
		}
		users.Wait()
		if source.fetches != 3 {
			t.Errorf("%d fetches, want 2 that failed and 1", source.fetches)
		}
		// The next process takes it over, unless it is damaged.
		if err := os.WriteFile(filepath.Join(dir, sum), []byte("damage"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".fetch-1"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err = openArtifactCache(dir, 1<<20, 5, source, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, ".fetch-1")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("half a file: %v", err)
		}
		path, release, err := c.acquire(t.Context(), sum)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if content, err := os.ReadFile(path); err != nil || string(content) != "binary" {
			t.Errorf("%q, %v", content, err)
		}
	})
}

func TestArtifactThatIsNotWhatItShouldBeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &artifacts{}
		sum := source.add("binary")
		source.content[sum] = "something else"
		dir := t.TempDir()
		c, err := openArtifactCache(dir, 1<<20, 3, source, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.acquire(t.Context(), sum); err == nil || !strings.Contains(err.Error(), sum) {
			t.Errorf("wrong content: %v", err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("left: %v, %v", files, err)
		}
		if _, _, err := c.acquire(t.Context(), "../etc/passwd"); !errors.Is(err, ErrUnusable) {
			t.Errorf("name that is no hash: %v", err)
		}
	})
}

func TestLeastRecentlyUsedArtifactGoesFirstAndThoseInUseStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &artifacts{}
		dir := t.TempDir()
		c, err := openArtifactCache(dir, 250, 1, source, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		var sums []string
		for _, letter := range []string{"a", "b", "c", "d"} {
			sums = append(sums, source.add(strings.Repeat(letter, 100)))
		}
		_, hold, err := c.acquire(t.Context(), sums[0])
		if err != nil {
			t.Fatal(err)
		}
		defer hold()
		for _, sum := range sums[1:] {
			_, release, err := c.acquire(t.Context(), sum)
			if err != nil {
				t.Fatal(err)
			}
			release()
			time.Sleep(time.Second)
		}
		for i, want := range []bool{true, false, false, true} {
			if _, err := os.Stat(filepath.Join(dir, sums[i])); (err == nil) != want {
				t.Errorf("artifact %d: %v, want it to stay: %t", i, err, want)
			}
		}
	})
}

func TestWorkDirIsUsedByOneProcessAndDeadOnesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	first, err := OpenWorkDir("", parent, "taskmanager")
	if err != nil {
		t.Fatal(err)
	}
	// A dead one: its lock is free.
	dead := filepath.Join(parent, "weir-taskmanager-dead")
	if err := os.MkdirAll(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := OpenWorkDir("", parent, "taskmanager")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dead directory: %v", err)
	}
	if _, err := os.Stat(first.Path()); err != nil {
		t.Error(err)
	}
	named, err := OpenWorkDir(filepath.Join(parent, "named"), "", "taskmanager")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenWorkDir(named.Path(), "", "taskmanager"); err == nil || !strings.Contains(err.Error(), "used by another process") {
		t.Errorf("second user of a directory: %v", err)
	}
	for _, d := range []*WorkDir{first, second, named} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(first.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory after close: %v", err)
	}
	if _, err := os.Stat(named.Path()); err != nil {
		t.Errorf("named directory after close: %v", err)
	}
}
