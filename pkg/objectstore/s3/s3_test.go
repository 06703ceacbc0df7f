package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

// newStore returns a store at a server that answers with handler, with limits
// short enough for tests.
func newStore(t *testing.T, retryTimeout time.Duration, handler http.HandlerFunc) *s3.Store {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return storeAt(t, server.URL, 2*time.Second, retryTimeout)
}

// How long a store repeats a request: hardly, for tests in which it never
// succeeds, and long enough for those in which it must.
const (
	retriesShort = 20 * time.Millisecond
	retriesLong  = 20 * time.Second
)

func storeAt(t *testing.T, endpoint string, attemptTimeout, retryTimeout time.Duration) *s3.Store {
	t.Helper()
	client, err := s3.NewClient(s3.Options{
		Endpoint: endpoint, AccessKey: "key", SecretKey: "secret", PathStyle: true,
		AttemptTimeout: attemptTimeout, RetryTimeout: retryTimeout, PartSize: 5 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := client.Store("bucket", "prefix")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>message of %s</Message></Error>`, code, code)
}

// call is one method of a store, for tests of all of them.
type call struct {
	name    string
	isWrite bool
	do      func(context.Context, objectstore.Store) error
}

var calls = []call{
	{"Put", true, func(ctx context.Context, s objectstore.Store) error {
		return s.Put(ctx, "dir/x", func(w io.Writer) error { _, err := w.Write([]byte("x")); return err })
	}},
	{"PutIf", true, func(ctx context.Context, s objectstore.Store) error {
		_, err := s.PutIf(ctx, "dir/x", []byte("x"), objectstore.IfAbsent())
		return err
	}},
	{"Delete", true, func(ctx context.Context, s objectstore.Store) error { return s.Delete(ctx, "dir/x") }},
	{"Read", false, func(ctx context.Context, s objectstore.Store) error {
		_, _, err := s.Read(ctx, "dir/x", 10)
		return err
	}},
	{"Open", false, func(ctx context.Context, s objectstore.Store) error {
		reader, err := s.Open(ctx, "dir/x")
		if err == nil {
			reader.Close()
		}
		return err
	}},
	{"List", false, func(ctx context.Context, s objectstore.Store) error {
		for _, err := range s.List(ctx, "dir/") {
			return err
		}
		return nil
	}},
	{"DiscardStaged", false, func(ctx context.Context, s objectstore.Store) error {
		_, err := s.DiscardStaged(ctx, "dir/", func(string) bool { return true })
		return err
	}},
}

var classes = []error{
	objectstore.ErrNotExist, objectstore.ErrPrecondition, objectstore.ErrDenied, objectstore.ErrNoBucket, objectstore.ErrUnavailable,
}

// I9: what the server answers has one class, and nothing but its own
// NoSuchKey is an absence.
func TestAnswersHaveClasses(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
		want   error
	}{
		{403, "AccessDenied", objectstore.ErrDenied},
		{403, "SignatureDoesNotMatch", objectstore.ErrDenied},
		{404, "NoSuchBucket", objectstore.ErrNoBucket},
		{412, "PreconditionFailed", objectstore.ErrPrecondition},
		{400, "InvalidArgument", nil},
	} {
		store := newStore(t, retriesShort, func(w http.ResponseWriter, _ *http.Request) { answer(w, test.status, test.code) })
		for _, call := range calls {
			err := call.do(t.Context(), store)
			if err == nil {
				t.Errorf("%d %s: %s succeeded", test.status, test.code, call.name)
				continue
			}
			for _, class := range classes {
				if errors.Is(err, class) != (class == test.want) {
					t.Errorf("%d %s: %s returned %q; is it %q: %v", test.status, test.code, call.name, err, class, errors.Is(err, class))
				}
			}
			if errors.Is(err, objectstore.ErrUnknownOutcome) {
				t.Errorf("%d %s: %s returned %q, but the server refused", test.status, test.code, call.name, err)
			}
			if !strings.Contains(err.Error(), "s3://bucket/prefix/dir") {
				t.Errorf("%s: error %q does not name the object", call.name, err)
			}
		}
	}
}

func TestAbsence(t *testing.T) {
	store := newStore(t, retriesShort, func(w http.ResponseWriter, _ *http.Request) { answer(w, 404, "NoSuchKey") })
	for _, call := range calls {
		err := call.do(t.Context(), store)
		switch call.name {
		case "Read", "Open":
			if !errors.Is(err, objectstore.ErrNotExist) {
				t.Errorf("%s: %v, want ErrNotExist", call.name, err)
			}
		case "PutIf":
			if !errors.Is(err, objectstore.ErrPrecondition) || errors.Is(err, objectstore.ErrNotExist) {
				t.Errorf("PutIf: %v, want ErrPrecondition alone", err)
			}
		case "Delete":
			if err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
	}
}

// I9: a 404 that a proxy made is no absence.
func TestForeignNotFoundIsUnavailable(t *testing.T) {
	store := newStore(t, retriesShort, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		io.WriteString(w, "<html>no backend</html>")
	})
	for _, call := range calls {
		err := call.do(t.Context(), store)
		if !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("%s: %v, want ErrUnavailable", call.name, err)
		}
	}
}

// I10: a 5xx leaves it open whether a write took effect.
func TestServerErrorLeavesWritesUnknown(t *testing.T) {
	for _, status := range []int{500, 503} {
		store := newStore(t, retriesShort, func(w http.ResponseWriter, _ *http.Request) { answer(w, status, "InternalError") })
		for _, call := range calls {
			err := call.do(t.Context(), store)
			if !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrUnknownOutcome) != call.isWrite {
				t.Errorf("%d: %s returned %v", status, call.name, err)
			}
		}
	}
}

// I10: so does a connection that breaks before the reply.
func TestLostReplyLeavesWritesUnknown(t *testing.T) {
	store := newStore(t, retriesShort, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	for _, call := range calls {
		err := call.do(t.Context(), store)
		if !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrUnknownOutcome) != call.isWrite {
			t.Errorf("%s returned %v", call.name, err)
		}
	}
}

// A server that accepts and never answers costs the attempt's time, not more.
func TestHangingServer(t *testing.T) {
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(released)
	store := storeAt(t, server.URL, 100*time.Millisecond, retriesShort)
	for _, call := range calls {
		began := time.Now()
		err := call.do(t.Context(), store)
		if !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrUnknownOutcome) != call.isWrite {
			t.Errorf("%s returned %v", call.name, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s took %v", call.name, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call.do(ctx, store); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("%s with an ended context returned %v", call.name, err)
		}
		cancel()
	}
}

// A body that stops in the middle breaks off and is asked for again from there.
func TestReaderResumes(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		from := 0
		if requests.Add(1) > 1 {
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
			if r.Header.Get("If-Match") != `"v1"` || from == 0 {
				t.Errorf("request %d has range %q, If-Match %q", requests.Load(), r.Header.Get("Range"), r.Header.Get("If-Match"))
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		io.WriteString(w, content[from:min(from+4000, len(content))])
		w.(http.Flusher).Flush()
		if from+4000 < len(content) {
			if requests.Load() == 1 {
				panic(http.ErrAbortHandler) // breaks the connection
			}
			<-r.Context().Done() // stalls
		}
	}))
	defer server.Close()
	reader, err := storeAt(t, server.URL, 200*time.Millisecond, retriesLong).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(reader)
	if err != nil || string(got) != content || requests.Load() != 3 {
		t.Errorf("read %d bytes of %d in %d requests, error %v", len(got), len(content), requests.Load(), err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// Throttling that passes is outlasted, but a conditional write is sent once.
func TestRetries(t *testing.T) {
	var requests atomic.Int32
	store := newStore(t, retriesLong, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 {
			answer(w, 503, "SlowDown")
			return
		}
		w.Header().Set("ETag", `"e"`)
	})
	if err := calls[0].do(t.Context(), store); err != nil || requests.Load() != 2 {
		t.Errorf("Put: %v after %d requests", err, requests.Load())
	}
	requests.Store(0)
	if err := calls[1].do(t.Context(), store); !errors.Is(err, objectstore.ErrUnknownOutcome) || requests.Load() != 1 {
		t.Errorf("PutIf: %v after %d requests", err, requests.Load())
	}
}

// Many uploads that are throttled at once have a budget each: all complete
// once the server serves again.
func TestThrottledUploadsAllComplete(t *testing.T) {
	const uploads = 50
	var requests, objects atomic.Int32
	store := newStore(t, retriesLong, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if requests.Add(1) <= 3*uploads {
			answer(w, 503, "SlowDown")
			return
		}
		objects.Add(1)
		w.Header().Set("ETag", `"e"`)
	})
	var wait sync.WaitGroup
	for range uploads {
		wait.Go(func() {
			if err := calls[0].do(t.Context(), store); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if objects.Load() != uploads {
		t.Errorf("%d objects were put, want %d", objects.Load(), uploads)
	}
}

// A PutIf sends its condition, also for content above the size at which
// clients like to switch to parts.
func TestConditionIsSentWithOneRequest(t *testing.T) {
	var requests atomic.Int32
	store := newStore(t, retriesShort, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != http.MethodPut || r.URL.RawQuery != "" || r.Header.Get("If-Match") != `"old"` || r.Header.Get("If-None-Match") != "" {
			t.Errorf("%s %s with If-Match %q", r.Method, r.URL, r.Header.Get("If-Match"))
		}
		size, err := io.Copy(io.Discard, r.Body)
		if err != nil || size != 20<<20 {
			t.Errorf("%d bytes, error %v", size, err)
		}
		w.Header().Set("ETag", `"new"`)
	})
	etag, err := store.PutIf(t.Context(), "x", make([]byte, 20<<20), objectstore.IfMatch("old"))
	if err != nil || etag != "new" || requests.Load() != 1 {
		t.Errorf("ETag %s, error %v after %d requests", etag, err, requests.Load())
	}
}

// multipartServer answers the requests of a multipart upload; complete
// decides about its end.
func multipartServer(complete func(w http.ResponseWriter, attempt int), aborts *atomic.Int32) http.HandlerFunc {
	var attempts atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		query := r.URL.Query()
		switch {
		case r.Method == http.MethodPost && query.Has("uploads"):
			io.WriteString(w, `<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>x</Key><UploadId>u1</UploadId></InitiateMultipartUploadResult>`)
		case r.Method == http.MethodPut && query.Has("partNumber"):
			w.Header().Set("ETag", `"part"`)
		case r.Method == http.MethodPost && query.Get("uploadId") == "u1":
			complete(w, int(attempts.Add(1)))
		case r.Method == http.MethodDelete && query.Get("uploadId") == "u1":
			aborts.Add(1)
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodHead:
			w.Header().Set("Content-Length", fmt.Sprint(6<<20))
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		default:
			answer(w, 400, "InvalidRequest")
		}
	}
}

func putLarge(t *testing.T, store objectstore.Store) error {
	return store.Put(t.Context(), "x", func(w io.Writer) error { _, err := w.Write(make([]byte, 6<<20)); return err })
}

// A completion that is always throttled is a failure whose outcome is
// unknown, and its parts are given up.
func TestCompletionFails(t *testing.T) {
	var aborts atomic.Int32
	store := newStore(t, retriesShort, multipartServer(func(w http.ResponseWriter, _ int) { answer(w, 503, "SlowDown") }, &aborts))
	if err := putLarge(t, store); !errors.Is(err, objectstore.ErrUnknownOutcome) || aborts.Load() != 1 {
		t.Errorf("Put: %v, %d aborts", err, aborts.Load())
	}
}

// A completion whose reply was lost is recognised when it is repeated.
func TestCompletionRepliesLate(t *testing.T) {
	var aborts atomic.Int32
	store := newStore(t, retriesLong, multipartServer(func(w http.ResponseWriter, attempt int) {
		if attempt == 1 {
			answer(w, 500, "InternalError")
			return
		}
		answer(w, 404, "NoSuchUpload")
	}, &aborts))
	if err := putLarge(t, store); err != nil || aborts.Load() != 0 {
		t.Errorf("Put: %v, %d aborts", err, aborts.Load())
	}
}

// Status 200 with an error in the body is an error.
func TestCompletionWithErrorInBody(t *testing.T) {
	var aborts atomic.Int32
	store := newStore(t, retriesShort, multipartServer(func(w http.ResponseWriter, _ int) { answer(w, 200, "InternalError") }, &aborts))
	if err := putLarge(t, store); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("Put: %v", err)
	}
}

func TestCheckNamesEndpointThatIsDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + listener.Addr().String()
	listener.Close()
	store := storeAt(t, endpoint, time.Second, retriesShort)
	err = store.Check(t.Context())
	if !errors.Is(err, objectstore.ErrUnavailable) || !strings.Contains(err.Error(), endpoint) || !strings.Contains(err.Error(), `"bucket"`) {
		t.Errorf("Check: %v", err)
	}
	// Nothing was sent, so nothing was written.
	if err := calls[1].do(t.Context(), store); !errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrUnknownOutcome) {
		t.Errorf("PutIf: %v", err)
	}
}

func TestCheckRefusesServerWithoutConditions(t *testing.T) {
	store := newStore(t, retriesShort, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.Method {
		case http.MethodGet:
			io.WriteString(w, `<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount></ListBucketResult>`)
		case http.MethodPut:
			w.Header().Set("ETag", `"e"`)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	if err := store.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("Check: %v", err)
	}
}
