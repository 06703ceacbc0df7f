//go:build e2e

package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// storeProxy stands between a cluster and its S3 server, on loopback, and holds
// requests up where a test asks for it: so a process can be killed in the middle
// of one, and not by luck.
type storeProxy struct {
	t      *testing.T
	target func(ctx context.Context) (*url.URL, error)

	mu    sync.Mutex
	holds []*hold
	// refused requests are answered with 403; nil for none.
	refused func(r *http.Request) bool
}

// holdPoint is where in a request it is held up.
type holdPoint int

const (
	// beforeRequest holds a request back from the server.
	beforeRequest holdPoint = iota
	// insideBody holds it when half of its body has come.
	insideBody
	// beforeReply holds the answer back: the server has done what was asked.
	beforeReply
)

// hold holds up the requests that match, until it is released.
type hold struct {
	point holdPoint
	match func(r *http.Request) bool
	// reached has the path of each request that is held; more than its size are
	// held too, and not told of.
	reached  chan string
	released chan struct{}
	release  func()
	// severed requests end when they are released, see sever.
	severed atomic.Bool
}

// holdTime bounds how long a request is held: less than the client's own time
// limit for an attempt, behind which a hold would be a fault of the store.
const holdTime = 18 * time.Second

// holdMax bounds the requests that are told of.
const holdMax = 64

// startBehindProxy starts a cluster whose checkpoints, savepoints and records
// are on an S3 server that it reaches through a proxy.
func startBehindProxy(t *testing.T, flags ...string) (*cluster, *storeProxy) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	p := &storeProxy{t: t, target: serverOf(&clidriver.Cluster{Driver: flinkctl(t), Dir: dir})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		p.releaseAll()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	all := append([]string{"--s3", "-D", "high-availability.storageDir=s3://weir/ha", "-D", "s3.endpoint=http://" + listener.Addr().String()}, flags...)
	return startIn(t, dir, all...), p
}

// serverOf finds the S3 server of a cluster when it is first asked for: the
// cluster chooses the port after it has been told the proxy's.
func serverOf(c *clidriver.Cluster) func(ctx context.Context) (*url.URL, error) {
	var mu sync.Mutex
	var found *url.URL
	return func(ctx context.Context) (*url.URL, error) {
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return found, nil
		}
		process, err := c.Process(ctx, cliresult.S3Role)
		if err != nil {
			return nil, err
		}
		found = &url.URL{Scheme: "http", Host: process.Address}
		return found, nil
	}
}

func (p *storeProxy) handler() http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	transport.MaxIdleConnsPerHost = 64
	p.t.Cleanup(transport.CloseIdleConnections)
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			target, err := p.target(r.In.Context())
			if err != nil {
				target = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} // nobody listens: 502
			}
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is part of the signature
		},
		ModifyResponse: func(r *http.Response) error {
			p.wait(r.Request, beforeReply)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.wait(r, beforeRequest)
		if p.refuses(r) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>refused by the test</Message></Error>") // the client may be gone
			return
		}
		if r.ContentLength > 1 {
			r.Body = &heldBody{ReadCloser: r.Body, left: r.ContentLength / 2, wait: func() bool { return p.wait(r, insideBody) }}
		}
		forward.ServeHTTP(w, r)
	})
}

// heldBody calls wait when half of the body has been read.
type heldBody struct {
	io.ReadCloser
	left int64
	wait func() (severed bool)
}

// Read reads no further than the half, and waits there.
func (b *heldBody) Read(to []byte) (int, error) {
	if b.left == 0 {
		if b.wait() {
			return 0, io.ErrUnexpectedEOF
		}
		b.left = -1
	}
	if b.left > 0 {
		to = to[:min(int64(len(to)), b.left)]
	}
	n, err := b.ReadCloser.Read(to)
	if b.left > 0 {
		b.left -= int64(n)
	}
	return n, err
}

// wait holds a request up if a hold asks for it, and tells whether it was severed.
func (p *storeProxy) wait(r *http.Request, point holdPoint) (severed bool) {
	p.mu.Lock()
	var by *hold
	for _, h := range p.holds {
		if h.point == point && h.match(r) {
			by = h
			break
		}
	}
	p.mu.Unlock()
	if by == nil {
		return false
	}
	select {
	case by.reached <- r.URL.Path:
	default:
	}
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	select {
	case <-by.released:
	case <-limit.C:
	}
	return by.severed.Load()
}

// sever releases requests that are held inside their bodies and cuts them off
// there: for a client that was killed, of whose body some megabytes more may be
// in the buffers of its connection.
func (h *hold) sever() {
	h.severed.Store(true)
	h.release()
}

// refuse answers all requests that match with 403, until lifted.
func (p *storeProxy) refuse(match func(r *http.Request) bool) (lift func()) {
	set := func(match func(r *http.Request) bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused = match
	}
	set(match)
	return func() { set(nil) }
}

func (p *storeProxy) refuses(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused != nil && p.refused(r)
}

// hold holds up all requests that match from now on.
func (p *storeProxy) hold(point holdPoint, match func(r *http.Request) bool) *hold {
	h := &hold{point: point, match: match, reached: make(chan string, holdMax), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() {
		p.mu.Lock()
		for i, other := range p.holds {
			if other == h {
				p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
				break
			}
		}
		p.mu.Unlock()
		close(h.released)
	})
	p.mu.Lock()
	p.holds = append(p.holds, h)
	p.mu.Unlock()
	return h
}

func (p *storeProxy) releaseAll() {
	p.mu.Lock()
	holds := slices.Clone(p.holds)
	p.mu.Unlock()
	for _, h := range holds {
		h.release()
	}
}

// await waits until a request is held, and returns its path.
func (h *hold) await(c *cluster, what string) string {
	c.t.Helper()
	select {
	case path := <-h.reached:
		return path
	case <-c.ctx.Done():
		c.t.Fatalf("waiting for %s: %v", what, context.Cause(c.ctx))
	}
	return ""
}

// statePath is the path of a file of state, private or shared: its vertex and subtask are in the groups.
var statePath = regexp.MustCompile(`/(?:\d+\.\d+-|shared/\d+\.\d+/\d+-)(\d+)\.(\d+)\.\d+$`)

// isStateOf matches requests of that method for files of state whose path has the part.
func isStateOf(method string, part *regexp.Regexp) func(r *http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && statePath.MatchString(r.URL.Path) && part.MatchString(r.URL.Path)
	}
}
