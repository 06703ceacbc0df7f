package objectstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Sub is a view of the objects of store below prefix, which ends with no
// slash. An empty prefix gives store itself.
func Sub(store Store, prefix string) Store {
	if prefix == "" {
		return store
	}
	return &subStore{parent: store, prefix: prefix + "/"}
}

// SubURI is the view of store whose root is uri, which must be the URI of
// store's own root or below it. With it one store, for example one in memory,
// serves all the URIs of a cluster.
func SubURI(store Store, uri string) (Store, error) {
	root := strings.TrimSuffix(store.URI(""), "/")
	rest, ok := strings.CutPrefix(strings.TrimSuffix(uri, "/"), root)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, fmt.Errorf("%s is not below %s", uri, root)
	}
	return Sub(store, strings.TrimPrefix(rest, "/")), nil
}

// subStore adds its prefix to every name on the way in and takes it off on the way out.
type subStore struct {
	parent Store
	prefix string
}

var _ Store = (*subStore)(nil)

func (s *subStore) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return s.parent.Put(ctx, s.prefix+name, write)
}

func (s *subStore) PutIf(ctx context.Context, name string, content []byte, cond Condition) (ETag, error) {
	return s.parent.PutIf(ctx, s.prefix+name, content, cond)
}

func (s *subStore) Read(ctx context.Context, name string, sizeMax int64) ([]byte, ETag, error) {
	return s.parent.Read(ctx, s.prefix+name, sizeMax)
}

func (s *subStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return s.parent.Open(ctx, s.prefix+name)
}

func (s *subStore) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for object, err := range s.parent.List(ctx, s.prefix+prefix) {
			object.Name = strings.TrimPrefix(object.Name, s.prefix)
			if !yield(object, err) {
				return
			}
		}
	}
}

func (s *subStore) Delete(ctx context.Context, name string) error {
	return s.parent.Delete(ctx, s.prefix+name)
}

func (s *subStore) DiscardStaged(ctx context.Context, prefix string, dead func(name string) bool) (int, error) {
	return s.parent.DiscardStaged(ctx, s.prefix+prefix, func(name string) bool {
		return dead(strings.TrimPrefix(name, s.prefix))
	})
}

func (s *subStore) Check(ctx context.Context) error { return s.parent.Check(ctx) }

func (s *subStore) URI(name string) string {
	return s.parent.URI(strings.TrimSuffix(s.prefix+name, "/"))
}
