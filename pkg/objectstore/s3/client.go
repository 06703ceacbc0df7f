package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Options say how to reach a server. They are the s3.* keys of the
// configuration, and limits that have defaults.
type Options struct {
	// Endpoint is the server's URL, http:// or https://; without a scheme it
	// is https. Empty means Amazon's.
	Endpoint string
	// AccessKey and SecretKey authenticate; when both are empty they are taken
	// from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
	AccessKey, SecretKey string
	// PathStyle puts the bucket into the path instead of the host name, as
	// servers other than Amazon's mostly need.
	PathStyle bool
	// Region signs requests; empty means us-east-1.
	Region string
	// AttemptTimeout limits each attempt, and each pause in a body that is
	// read; 0 means 20 s.
	AttemptTimeout time.Duration
	// RetryTimeout limits all attempts of one unconditional request together;
	// 0 means 60 s.
	RetryTimeout time.Duration
	// PartSize is the size in bytes of the parts of a long stream, and so the
	// memory that one Put takes; 0 means 8 MiB, the least is 5 MiB.
	PartSize int
}

const (
	defaultEndpoint = "https://s3.amazonaws.com"
	defaultRegion   = "us-east-1"
	// An attempt sends at most one part: 20 s are enough at 0.4 MB/s.
	defaultAttemptTimeout = 20 * time.Second
	// Throttling and failovers of servers last some ten seconds; a checkpoint
	// may take 10 minutes.
	defaultRetryTimeout = 60 * time.Second
	defaultPartSize     = 8 << 20
	partSizeMin         = 5 << 20 // the protocol's
	dialTimeout         = 5 * time.Second
	// idleConnectionsMax is the number of subtasks of one host that may upload
	// at once without making new connections each time.
	idleConnectionsMax = 64
)

// Client reaches one server. Stores made of it share its connections. It may
// be used by many goroutines at once.
type Client struct {
	options   Options
	endpoint  string
	core      minio.Core
	transport *http.Transport
}

// NewClient checks the options; it does not connect.
func NewClient(options Options) (*Client, error) {
	if options.Endpoint == "" {
		options.Endpoint = defaultEndpoint
	}
	if options.Region == "" {
		options.Region = defaultRegion
	}
	if options.AttemptTimeout <= 0 {
		options.AttemptTimeout = defaultAttemptTimeout
	}
	if options.RetryTimeout <= 0 {
		options.RetryTimeout = defaultRetryTimeout
	}
	if options.PartSize == 0 {
		options.PartSize = defaultPartSize
	}
	if options.PartSize < partSizeMin {
		return nil, fmt.Errorf("s3 part size %d is too small: at least %d", options.PartSize, partSizeMin)
	}
	endpoint, err := parseEndpoint(options.Endpoint)
	if err != nil {
		return nil, err
	}
	keys := credentials.NewEnvAWS()
	switch {
	case options.AccessKey != "" && options.SecretKey != "":
		keys = credentials.NewStaticV4(options.AccessKey, options.SecretKey, "")
	case options.AccessKey != "" || options.SecretKey != "":
		return nil, errors.New("s3.access-key and s3.secret-key must be given together")
	}
	secure := endpoint.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint %s: %w", options.Endpoint, err)
	}
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	transport.MaxIdleConnsPerHost = idleConnectionsMax
	lookup := minio.BucketLookupAuto
	if options.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds:        keys,
		Secure:       secure,
		Transport:    strictTransport{transport},
		Region:       options.Region,
		BucketLookup: lookup,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, fmt.Errorf("s3 endpoint %s: %w", options.Endpoint, err)
	}
	return &Client{options: options, endpoint: endpoint.String(), core: *core, transport: transport}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Store returns the store of the objects of a bucket below a prefix, which
// may be empty. It does not connect; see Store.Check.
func (c *Client) Store(bucket, prefix string) (*Store, error) {
	prefix = strings.Trim(prefix, "/")
	if prefix != "" {
		if err := objectstore.ValidateName(prefix); err != nil {
			return nil, fmt.Errorf("s3://%s/%s: %w", bucket, prefix, err)
		}
		prefix += "/"
	}
	if bucket == "" || strings.ContainsAny(bucket, "/ ") {
		return nil, fmt.Errorf("s3 bucket %q is not a bucket's name", bucket)
	}
	return &Store{client: c, bucket: bucket, prefix: prefix}, nil
}

func parseEndpoint(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	endpoint, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("s3.endpoint: %w", err)
	}
	if endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("s3.endpoint %q: want http://HOST:PORT or https://HOST:PORT", text)
	}
	endpoint.Path = ""
	return endpoint, nil
}

// strictTransport turns a 404 that is not an S3 error document into a 502.
// The client would report it as an object that does not exist, when it is a
// proxy without a backend, or a wrong path, that speaks (I9).
type strictTransport struct {
	next http.RoundTripper
}

// errorDocumentMax bounds what is looked at of an answer: error documents are
// some hundred bytes.
const errorDocumentMax = 64 << 10

func (t strictTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusNotFound || request.Method == http.MethodHead {
		return response, err
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, errorDocumentMax))
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(document))
	if !bytes.Contains(document, []byte("<Code>")) {
		response.StatusCode = http.StatusBadGateway
		response.Status = "404 without an S3 error document"
	}
	return response, nil
}
