package local

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/objectstore"
)

// List walks the directories that can hold matching objects. It holds the
// entries of one directory per level in memory.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		err := s.walk(ctx, prefix, func(name string, entry fs.DirEntry) error {
			if objectstore.ValidateName(name) != nil {
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(objectstore.Object{Name: name, Size: info.Size()}, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(objectstore.Object{}, s.wrap("list", prefix, err))
		}
	}
}

var errStop = errors.New("iteration stopped")

// DiscardStaged removes temporary files of objects that nobody writes any more.
func (s *Store) DiscardStaged(ctx context.Context, prefix string, dead func(name string) bool) (int, error) {
	removed := 0
	err := s.walk(ctx, prefix, func(name string, entry fs.DirEntry) error {
		object, ok := stagedObject(entry.Name())
		if !ok {
			return nil
		}
		name = strings.TrimSuffix(name, entry.Name()) + object
		if !strings.HasPrefix(name, prefix) || !dead(name) {
			return nil
		}
		path := filepath.Join(filepath.Dir(s.path(name)), entry.Name())
		if err := os.Remove(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return classify(err)
		}
		removed++
		s.removeEmptyAbove(path)
		return nil
	})
	if err != nil {
		return removed, s.wrap("discard-staged", prefix, err)
	}
	return removed, nil
}

// walk visits the regular files whose names begin with prefix, and temporary
// files in every directory it passes, in order of their names.
func (s *Store) walk(ctx context.Context, prefix string, visit func(name string, entry fs.DirEntry) error) error {
	return s.walkDirectory(ctx, "", prefix, visit)
}

func (s *Store) walkDirectory(ctx context.Context, dir, prefix string, visit func(name string, entry fs.DirEntry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		// It may have been removed since its parent was read, and a root that
		// does not exist yet holds nothing. Any other error is not an absence.
		if err = classify(err); errors.Is(err, objectstore.ErrNotExist) {
			return nil
		}
		return err
	}
	// Object names are ordered as wholes, where a directory's name goes on
	// with a slash: "a.b" comes before "a/c".
	key := func(entry fs.DirEntry) string {
		if entry.IsDir() {
			return entry.Name() + "/"
		}
		return entry.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, entry := range entries {
		name := dir + key(entry)
		var err error
		switch {
		case entry.IsDir() && entry.Name()[0] != '.' && (strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name)):
			err = s.walkDirectory(ctx, name, prefix, visit)
		case entry.Type().IsRegular() && (strings.HasPrefix(name, prefix) || strings.HasPrefix(entry.Name(), stagedPrefix)):
			err = visit(name, entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
