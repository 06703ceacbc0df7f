package objectstore

import (
	"context"
	"io"
	"iter"
)

// Store is a flat namespace of objects below one root. Names are relative to
// that root, slash-separated and checked by ValidateName.
//
// A Store may be used by many goroutines at once. Every method returns within
// a bounded time even when the service behind it hangs, and early when ctx
// ends. Errors match the sentinels of this package with errors.Is and name
// the operation and the object.
type Store interface {
	// Put creates or replaces an object with what write produces, of a length
	// not known beforehand. The object becomes visible, and durable, only as a
	// whole and only if write returns nil; after an error nothing of it is
	// visible unless the error is ErrUnknownOutcome. write is called once, on
	// the caller's goroutine.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// PutIf writes a small object if the condition holds, atomically with the
	// check, and returns the ETag of what it wrote. ErrPrecondition means that
	// the condition did not hold and nothing was written; after
	// ErrUnknownOutcome the caller must Read to learn what is there. It makes
	// one attempt and never retries, since a retry could not tell its own
	// earlier success from another writer's.
	PutIf(ctx context.Context, name string, content []byte, cond Condition) (ETag, error)

	// Read returns a whole object of at most sizeMax bytes with its ETag.
	// ErrNotExist if there is none, ErrTooLarge if it is larger.
	Read(ctx context.Context, name string, sizeMax int64) ([]byte, ETag, error)

	// Open returns a reader of the object. ErrNotExist if there is none. ctx
	// governs the reads too. The caller closes it.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// List yields the objects whose names begin with prefix, in ascending
	// order of their names, in pages of bounded memory. Objects may be deleted
	// while the iteration goes on. An error is yielded once, as the last item.
	// Names that ValidateName refuses are foreign and not shown.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Delete removes an object. Deleting what does not exist succeeds.
	Delete(ctx context.Context, name string) error

	// DiscardStaged removes what interrupted Puts left behind below prefix and
	// no List shows (temporary files, unfinished multipart uploads), for the
	// object names that dead accepts: names that nobody will write any more.
	// It returns how many it removed.
	DiscardStaged(ctx context.Context, prefix string, dead func(name string) bool) (int, error)

	// Check verifies that the store can be reached and written, and says in
	// one error what is wrong and how to cure it: for S3 the error names the
	// bucket and the endpoint and tells a missing bucket (ErrNoBucket), wrong
	// credentials (ErrDenied) and an endpoint that does not answer
	// (ErrUnavailable) apart.
	Check(ctx context.Context) error

	// URI is how users and other processes name the object: an absolute path
	// or a URI. The empty name gives the root.
	URI(name string) string
}

// ETag identifies the content of an object at one moment: it differs whenever
// the content does. Only equality means anything.
type ETag string

// Object is one entry of a listing.
type Object struct {
	Name string
	Size int64
}

// Condition says what must hold for a PutIf. The zero Condition is not valid.
type Condition struct {
	absent bool
	etag   ETag
}

// IfAbsent is the condition that no object of that name exists.
func IfAbsent() Condition { return Condition{absent: true} }

// IfMatch is the condition that the object exists with that ETag.
func IfMatch(etag ETag) Condition { return Condition{etag: etag} }

// IsAbsent reports whether the condition is IfAbsent.
func (c Condition) IsAbsent() bool { return c.absent }

// ETag is the one that must match; meaningless for IfAbsent.
func (c Condition) ETag() ETag { return c.etag }

// IsValid reports whether the condition came from IfAbsent, or from IfMatch
// with an ETag.
func (c Condition) IsValid() bool { return c.absent || c.etag != "" }

// String prints the condition for error messages and traces.
func (c Condition) String() string {
	switch {
	case c.absent:
		return "if-absent"
	case c.etag != "":
		return "if-match " + string(c.etag)
	}
	return "invalid condition"
}
