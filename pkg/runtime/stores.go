package runtime

import (
	"sync"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

// Stores opens object stores as configurations say. Configurations with the
// same S3 settings share their connections. It may be used concurrently.
type Stores struct {
	mu struct {
		sync.Mutex
		// openers are bounded by openersMax.
		openers map[s3.Options]*open.Opener
	}
}

// openersMax bounds the S3 servers whose connections are kept: jobs may bring
// their own, but hardly more than this. Beyond it all are closed, which costs
// those in use a new connection.
const openersMax = 16

// Opener gives the opener of stores for a configuration.
func (s *Stores) Opener(c *config.Config) checkpointstore.Opener {
	return func(uri string) (objectstore.Store, error) { return s.opener(c).Open(uri) }
}

func (s *Stores) opener(c *config.Config) *open.Opener {
	options := s3.Options{
		Endpoint:  config.S3Endpoint.Get(c),
		Region:    config.S3Region.Get(c),
		AccessKey: config.S3AccessKey.Get(c),
		SecretKey: config.S3SecretKey.Get(c),
		PathStyle: config.S3PathStyleAccess.Get(c),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if opener := s.mu.openers[options]; opener != nil {
		return opener
	}
	if len(s.mu.openers) >= openersMax {
		s.closeLocked()
	}
	if s.mu.openers == nil {
		s.mu.openers = map[s3.Options]*open.Opener{}
	}
	opener := open.New(open.Options{S3: options})
	s.mu.openers[options] = opener
	return opener
}

// Close closes idle connections. Stores stay usable.
func (s *Stores) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *Stores) closeLocked() {
	for _, opener := range s.mu.openers {
		opener.Close()
	}
	clear(s.mu.openers)
}
