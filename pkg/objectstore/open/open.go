package open

import (
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/local"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

// Options hold what the stores of a process need beside their URIs.
type Options struct {
	S3 s3.Options
}

// Opener makes stores; all that it makes share their connections. It may be
// used by many goroutines at once.
type Opener struct {
	options Options

	mu struct {
		sync.Mutex
		client *s3.Client // nil until an s3:// URI is opened
	}
}

// New returns an Opener. Options that are wrong are reported when a store
// that needs them is opened.
func New(options Options) *Opener { return &Opener{options: options} }

// Open returns the store whose root is the path or URI. It does no I/O:
// Store.Check tells whether the store can be used.
func (o *Opener) Open(uri string) (objectstore.Store, error) {
	scheme, rest, hasScheme := strings.Cut(uri, "://")
	switch {
	case !hasScheme && strings.HasPrefix(uri, "/"):
		return local.New(uri, uri)
	case hasScheme && scheme == "file":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return nil, fmt.Errorf("storage URI %q: %w", uri, err)
		}
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("storage URI %q: want file:///PATH with an absolute path", uri)
		}
		return local.New(path, uri)
	case hasScheme && scheme == "s3":
		client, err := o.s3Client()
		if err != nil {
			return nil, err
		}
		bucket, prefix, _ := strings.Cut(rest, "/")
		return client.Store(bucket, prefix)
	}
	return nil, fmt.Errorf("storage URI %q: want an absolute path, file:///PATH or s3://BUCKET/PREFIX", uri)
}

func (o *Opener) s3Client() (*s3.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.client != nil {
		return o.mu.client, nil
	}
	client, err := s3.NewClient(o.options.S3)
	if err != nil {
		return nil, err
	}
	o.mu.client = client
	return client, nil
}

// Close closes idle connections. Stores stay usable.
func (o *Opener) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.client != nil {
		o.mu.client.Close()
	}
}
