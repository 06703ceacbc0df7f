//go:build e2e

package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/s3"
	"github.com/weirstream/weir/pkg/objectstore/storetest"
)

// testBucket is made at the server of WEIR_TEST_S3_ENDPOINT and stays there, empty.
const testBucket = "weir-objectstore-test"

func serverOptions(t *testing.T) s3.Options {
	t.Helper()
	options := s3.Options{
		Endpoint:  os.Getenv("WEIR_TEST_S3_ENDPOINT"),
		AccessKey: os.Getenv("WEIR_TEST_S3_ACCESS_KEY"),
		SecretKey: os.Getenv("WEIR_TEST_S3_SECRET_KEY"),
		PathStyle: true,
		PartSize:  5 << 20,
	}
	if options.Endpoint == "" {
		t.Fatal("WEIR_TEST_S3_ENDPOINT, _ACCESS_KEY and _SECRET_KEY must name a server")
	}
	makeBucket(t, options)
	return options
}

func makeBucket(t *testing.T, options s3.Options) {
	t.Helper()
	endpoint, err := url.Parse(options.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(options.AccessKey, options.SecretKey, ""),
		Secure:       endpoint.Scheme == "https",
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = client.MakeBucket(t.Context(), testBucket, minio.MakeBucketOptions{Region: "us-east-1"})
	if code := minio.ToErrorResponse(err).Code; err != nil && code != "BucketAlreadyOwnedByYou" && code != "BucketAlreadyExists" {
		t.Fatal(err)
	}
}

func newServerStore(t *testing.T, options s3.Options, bucket, prefix string) *s3.Store {
	t.Helper()
	client, err := s3.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := client.Store(bucket, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestConformance(t *testing.T) {
	options, bucket := serverOptions(t), testBucket
	stores := 0
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		stores++
		store := newServerStore(t, options, bucket, fmt.Sprintf("conformance-%d/%d", os.Getpid(), stores))
		t.Cleanup(func() { empty(t, store) })
		return store
	}, storetest.Options{LargeObject: 12<<20 + 345, ListObjects: 1100})
}

// empty deletes what a test has left; t's context has ended.
func empty(t *testing.T, store objectstore.Store) {
	ctx := context.Background()
	for object, err := range store.List(ctx, "") {
		if err == nil {
			err = store.Delete(ctx, object.Name)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func TestDiscardStagedAbortsUploads(t *testing.T) {
	store := newServerStore(t, serverOptions(t), testBucket, fmt.Sprintf("staged-%d", os.Getpid()))
	err := store.Put(t.Context(), "chk-1/1.1-0.0.0", func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 11<<20)); err != nil {
			return err
		}
		for _, step := range []struct {
			dead string
			want int
		}{{"2.", 0}, {"1.", 1}, {"1.", 0}} {
			removed, err := store.DiscardStaged(t.Context(), "chk-", func(name string) bool {
				return strings.HasPrefix(name, "chk-1/"+step.dead)
			})
			if err != nil || removed != step.want {
				t.Errorf("dead %s: removed %d, error %v, want %d", step.dead, removed, err, step.want)
			}
		}
		return nil
	})
	if err == nil || errors.Is(err, objectstore.ErrNotExist) {
		t.Errorf("Put of a discarded upload: %v", err)
	}
}

// Bad configuration gets one clear error that names bucket and endpoint.
func TestCheckTellsWhatIsWrong(t *testing.T) {
	good, bucket := serverOptions(t), testBucket
	wrongKey, wrongSecret := good, good
	wrongKey.AccessKey = "nobody"
	wrongSecret.SecretKey = "wrong"
	for _, test := range []struct {
		name    string
		options s3.Options
		bucket  string
		want    error
		text    string
	}{
		{"good", good, bucket, nil, ""},
		{"bucket missing", good, "weir-no-such-bucket", objectstore.ErrNoBucket, "does not exist"},
		{"access key", wrongKey, bucket, objectstore.ErrDenied, "nobody"},
		{"secret key", wrongSecret, bucket, objectstore.ErrDenied, "s3.secret-key is wrong"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := newServerStore(t, test.options, test.bucket, "check").Check(t.Context())
			if test.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			for _, part := range []string{test.text, test.bucket, good.Endpoint} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
