package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
)

// ArtifactSource is where artifacts come from; *transport.JobManager.
type ArtifactSource interface {
	GetArtifact(ctx context.Context, sum string) (content io.ReadCloser, size int64, err error)
}

// artifactCache keeps fetched artifacts in a directory, each under its
// SHA-256, executable. What was used longest ago is removed when they take too
// much room; those of running executors stay.
type artifactCache struct {
	dir      string
	bytesMax int64
	tries    int
	source   ArtifactSource
	log      *zap.Logger

	mu struct {
		sync.Mutex
		entries map[string]*cachedArtifact
	}
}

type cachedArtifact struct {
	// turn has room for one: who fetches or checks the file, so that it is
	// done once.
	turn     chan struct{}
	present  bool
	checked  bool // since this process started
	size     int64
	users    int
	lastUsed time.Time
}

// openArtifactCache takes over what an earlier process left in dir. Files are
// checked before their first use.
func openArtifactCache(dir string, bytesMax int64, tries int, source ArtifactSource, log *zap.Logger) (*artifactCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make artifact directory: %w", err)
	}
	c := &artifactCache{dir: dir, bytesMax: bytesMax, tries: max(1, tries), source: source, log: log}
	c.mu.entries = map[string]*cachedArtifact{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read artifact directory: %w", err)
	}
	for _, file := range files {
		name := filepath.Join(dir, file.Name())
		info, err := file.Info()
		if err != nil || !isSHA256(file.Name()) {
			// A fetch that was interrupted.
			if err := os.Remove(name); err != nil {
				log.Warn("file in the artifact directory was not removed", logfield.File(name), zap.Error(err))
			}
			continue
		}
		c.mu.entries[file.Name()] = &cachedArtifact{turn: make(chan struct{}, 1), present: true, size: info.Size(), lastUsed: info.ModTime()}
	}
	return c, nil
}

// acquire returns the path of an artifact, fetching it first if necessary. The
// caller calls release when the executor has ended.
func (c *artifactCache) acquire(ctx context.Context, sum string) (path string, release func(), err error) {
	if !isSHA256(sum) {
		return "", nil, fmt.Errorf("artifact %.80q: is no SHA-256: %w", sum, ErrUnusable)
	}
	c.mu.Lock()
	entry := c.mu.entries[sum]
	if entry == nil {
		entry = &cachedArtifact{turn: make(chan struct{}, 1)}
		c.mu.entries[sum] = entry
	}
	entry.users++
	c.mu.Unlock()
	release = sync.OnceFunc(func() { c.release(entry) })

	select {
	case entry.turn <- struct{}{}:
		defer func() { <-entry.turn }()
	case <-ctx.Done():
		release()
		return "", nil, fmt.Errorf("fetch artifact %s: %w", sum, ctx.Err())
	}
	path = filepath.Join(c.dir, sum)
	c.mu.Lock()
	present, checked := entry.present, entry.checked
	c.mu.Unlock()
	if present && !checked {
		if err := checkFile(path, sum); err != nil {
			c.log.Warn("artifact is damaged: fetching it again", logfield.File(path), zap.Error(err))
			present = false
		}
	}
	if !present {
		size, err := c.fetchRepeatedly(ctx, sum, path)
		if err != nil {
			release()
			return "", nil, err
		}
		c.mu.Lock()
		entry.present, entry.size = true, size
		c.mu.Unlock()
	}
	c.mu.Lock()
	entry.checked = true
	c.mu.Unlock()
	return path, release, nil
}

func (c *artifactCache) release(entry *cachedArtifact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.users--
	entry.lastUsed = time.Now()
	c.evictLocked()
}

// evictLocked removes files until they fit, the least recently used first.
func (c *artifactCache) evictLocked() {
	var total int64
	var idle []string
	for sum, entry := range c.mu.entries {
		total += entry.size
		switch {
		case entry.users > 0:
		case !entry.present:
			delete(c.mu.entries, sum)
		default:
			idle = append(idle, sum)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return c.mu.entries[a].lastUsed.Compare(c.mu.entries[b].lastUsed) })
	for _, sum := range idle {
		if total <= c.bytesMax {
			return
		}
		name := filepath.Join(c.dir, sum)
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.log.Warn("artifact was not removed", logfield.File(name), zap.Error(err))
			continue
		}
		total -= c.mu.entries[sum].size
		delete(c.mu.entries, sum)
	}
}

func (c *artifactCache) fetchRepeatedly(ctx context.Context, sum, path string) (int64, error) {
	const pauseFirst, pauseMax = 100 * time.Millisecond, 5 * time.Second
	for try, pause := 1, pauseFirst; ; try, pause = try+1, min(2*pause, pauseMax) {
		size, err := c.fetch(ctx, sum, path)
		if err == nil || ctx.Err() != nil || try >= c.tries {
			return size, err
		}
		c.log.Warn("artifact was not fetched", logfield.Try(try), logfield.RetryIn(pause), zap.Error(err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, err
		}
	}
}

// fetch brings an artifact under its name, whole, checked and executable, or
// leaves nothing.
func (c *artifactCache) fetch(ctx context.Context, sum, path string) (size int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("fetch artifact %s: %w", sum, err)
		}
	}()
	content, _, err := c.source.GetArtifact(ctx, sum)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	file, err := os.CreateTemp(c.dir, ".fetch-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	hash := sha256.New()
	size, err = io.Copy(io.MultiWriter(file, hash), content)
	if err == nil {
		if have := hex.EncodeToString(hash.Sum(nil)); have != sum {
			err = fmt.Errorf("what came has the SHA-256 %s", have)
		}
	}
	if err == nil {
		err = file.Chmod(0o700)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(file.Name(), path)
}

func checkFile(name, sum string) (err error) {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if have := hex.EncodeToString(hash.Sum(nil)); have != sum {
		return fmt.Errorf("has the SHA-256 %s", have)
	}
	return nil
}

func isSHA256(name string) bool {
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == sha256.Size && hex.EncodeToString(sum) == name
}
