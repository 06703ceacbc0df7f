package memory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Store is an object store on the heap. Stored content is never changed in
// place, so readers see the object as it was when they opened it.
type Store struct {
	root string

	mu struct {
		sync.Mutex
		objects map[string][]byte
	}
}

var _ objectstore.Store = (*Store)(nil)

// New returns an empty store that names its objects root/name, for example
// with root "mem://test". Several roots in one store are made with
// objectstore.Sub.
func New(root string) *Store {
	s := &Store{root: strings.TrimSuffix(root, "/")}
	s.mu.objects = make(map[string][]byte)
	return s
}

// Put stores what write produces once write has returned nil.
func (s *Store) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := s.begin(ctx, name); err != nil {
		return s.wrap("put", name, err)
	}
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return s.wrap("put", name, err)
	}
	if err := ctx.Err(); err != nil {
		return s.wrap("put", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.objects[name] = content.Bytes()
	return nil
}

// PutIf stores content if the condition holds.
func (s *Store) PutIf(ctx context.Context, name string, content []byte, cond objectstore.Condition) (objectstore.ETag, error) {
	if err := s.begin(ctx, name); err != nil {
		return "", s.wrap("put-if", name, err)
	}
	if !cond.IsValid() {
		return "", s.wrap("put-if", name, objectstore.ErrInvalidCondition)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, exists := s.mu.objects[name]
	holds := !exists
	if !cond.IsAbsent() {
		holds = exists && etagOf(current) == cond.ETag()
	}
	if !holds {
		return "", s.wrap("put-if", name, objectstore.ErrPrecondition)
	}
	s.mu.objects[name] = bytes.Clone(content)
	return etagOf(content), nil
}

// Read returns a copy of the object.
func (s *Store) Read(ctx context.Context, name string, sizeMax int64) ([]byte, objectstore.ETag, error) {
	content, err := s.get(ctx, name)
	if err != nil {
		return nil, "", s.wrap("read", name, err)
	}
	if int64(len(content)) > sizeMax {
		return nil, "", s.wrap("read", name, objectstore.ErrTooLarge)
	}
	return bytes.Clone(content), etagOf(content), nil
}

// Open returns a reader of the object as it is now.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	content, err := s.get(ctx, name)
	if err != nil {
		return nil, s.wrap("open", name, err)
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// List yields the objects that exist when the iteration begins.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(objectstore.Object{}, s.wrap("list", prefix, err))
			return
		}
		for _, object := range s.matching(prefix) {
			if !yield(object, nil) {
				return
			}
		}
	}
}

func (s *Store) matching(prefix string) []objectstore.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []objectstore.Object
	for name, content := range s.mu.objects {
		if strings.HasPrefix(name, prefix) {
			found = append(found, objectstore.Object{Name: name, Size: int64(len(content))})
		}
	}
	slices.SortFunc(found, func(a, b objectstore.Object) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Delete removes the object if it is there.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.begin(ctx, name); err != nil {
		return s.wrap("delete", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.objects, name)
	return nil
}

// DiscardStaged finds nothing: an interrupted Put leaves nothing here.
func (s *Store) DiscardStaged(ctx context.Context, prefix string, _ func(string) bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, s.wrap("discard-staged", prefix, err)
	}
	return 0, nil
}

// Check succeeds.
func (s *Store) Check(ctx context.Context) error { return ctx.Err() }

// URI is root/name.
func (s *Store) URI(name string) string {
	if name == "" {
		return s.root
	}
	return s.root + "/" + name
}

func (s *Store) begin(ctx context.Context, name string) error {
	if err := objectstore.ValidateName(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (s *Store) get(ctx context.Context, name string) ([]byte, error) {
	if err := s.begin(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content, exists := s.mu.objects[name]
	if !exists {
		return nil, objectstore.ErrNotExist
	}
	return content, nil
}

func (s *Store) wrap(op, name string, err error) error {
	return &objectstore.Error{Op: op, URI: s.URI(name), Err: err}
}

func etagOf(content []byte) objectstore.ETag {
	sum := sha256.Sum256(content)
	return objectstore.ETag(hex.EncodeToString(sum[:16]))
}
