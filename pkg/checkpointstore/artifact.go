package checkpointstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

const artifactsDir = "artifacts/"

// Artifacts are named by the SHA-256 of their content, in lower-case
// hexadecimal, so they never change and are shared between jobs.

// PutArtifact stores an artifact of a length not known beforehand. If the
// content does not have that hash, nothing is stored and the error is
// ErrCorrupt. Putting one that is there already succeeds.
func (c *ClusterStore) PutArtifact(ctx context.Context, sha256Hex string, content io.Reader) error {
	name, err := artifactName(sha256Hex)
	if err != nil {
		return err
	}
	err = c.store.Put(ctx, name, func(w io.Writer) error {
		sum := sha256.New()
		if _, err := io.Copy(io.MultiWriter(w, sum), content); err != nil {
			return err
		}
		return checkSum(sum, sha256Hex)
	})
	if err != nil {
		return fmt.Errorf("put artifact %s: %w", sha256Hex, err)
	}
	return nil
}

// OpenArtifact returns a reader of an artifact that checks the hash: it ends
// with io.EOF only if the content is right, otherwise with ErrCorrupt.
// objectstore.ErrNotExist if there is none. The caller closes it.
func (c *ClusterStore) OpenArtifact(ctx context.Context, sha256Hex string) (io.ReadCloser, error) {
	name, err := artifactName(sha256Hex)
	if err != nil {
		return nil, err
	}
	reader, err := c.store.Open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open artifact %s: %w", sha256Hex, err)
	}
	return &artifactReader{ReadCloser: reader, sum: sha256.New(), want: sha256Hex, uri: c.store.URI(name)}, nil
}

// StatArtifact returns the size of an artifact, and whether it exists.
func (c *ClusterStore) StatArtifact(ctx context.Context, sha256Hex string) (size int64, exists bool, err error) {
	name, err := artifactName(sha256Hex)
	if err != nil {
		return 0, false, err
	}
	for object, err := range c.store.List(ctx, name) {
		if err != nil {
			return 0, false, fmt.Errorf("stat artifact %s: %w", sha256Hex, err)
		}
		if object.Name == name {
			return object.Size, true, nil
		}
	}
	return 0, false, nil
}

func artifactName(sha256Hex string) (string, error) {
	sum, err := hex.DecodeString(sha256Hex)
	if err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != sha256Hex {
		return "", fmt.Errorf("artifact %.80q: want the %d lower-case hexadecimal digits of a SHA-256", sha256Hex, 2*sha256.Size)
	}
	return artifactsDir + sha256Hex, nil
}

func checkSum(sum hash.Hash, want string) error {
	if have := hex.EncodeToString(sum.Sum(nil)); have != want {
		return fmt.Errorf("content has the SHA-256 %s: %w", have, ErrCorrupt)
	}
	return nil
}

type artifactReader struct {
	io.ReadCloser
	sum  hash.Hash
	want string
	uri  string
}

func (r *artifactReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.sum.Write(p[:n])
	if err == io.EOF {
		if sumErr := checkSum(r.sum, r.want); sumErr != nil {
			return n, fmt.Errorf("%s: %w", r.uri, sumErr)
		}
	}
	return n, err
}
