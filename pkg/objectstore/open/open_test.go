package open_test

import (
	"testing"

	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/objectstore/s3"
)

func TestOpen(t *testing.T) {
	opener := open.New(open.Options{S3: s3.Options{Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "s", PathStyle: true}})
	defer opener.Close()
	for uri, want := range map[string]string{
		"/data/chk":             "/data/chk/x",
		"/data/chk/":            "/data/chk/x",
		"/":                     "/x",
		"file:///data/chk":      "file:///data/chk/x",
		"file:///":              "file:///x",
		"s3://bucket":           "s3://bucket/x",
		"s3://bucket/":          "s3://bucket/x",
		"s3://bucket/some/path": "s3://bucket/some/path/x",
	} {
		store, err := opener.Open(uri)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if got := store.URI("x"); got != want {
			t.Errorf("%s: object has URI %s, want %s", uri, got, want)
		}
	}
	for _, uri := range []string{"", "relative/path", "file://host/path", "file://relative", "gs://bucket/x", "s3://", "s3:///prefix", "s3://bucket/a/../b", "file:///%zz"} {
		if store, err := opener.Open(uri); err == nil {
			t.Errorf("%s was opened as %s", uri, store.URI(""))
		}
	}
}

func TestWrongS3Options(t *testing.T) {
	for name, options := range map[string]s3.Options{
		"half of the keys":    {AccessKey: "a"},
		"endpoint with path":  {Endpoint: "http://host:1/path"},
		"endpoint of ftp":     {Endpoint: "ftp://host:1"},
		"parts that are tiny": {PartSize: 1},
	} {
		opener := open.New(open.Options{S3: options})
		if _, err := opener.Open("s3://bucket"); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := opener.Open("/local"); err != nil {
			t.Errorf("%s: a local store needs no S3 options: %v", name, err)
		}
	}
}
