//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDemo runs what make demo runs, behind its build.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	binary := program(t, "internal/demo")
	began := time.Now()
	cmd := exec.CommandContext(ctx, binary)
	cmd.Dir = root(t)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	contains(t, string(printed), "killed ", "noticed ", "running ", "from checkpoint ", "records checked: 20000", "duplicates: 0\n", "lost: 0\n")
	if lines := strings.Count(string(printed), "\n"); lines > 15 {
		t.Errorf("the demo prints %d lines:\n%s", lines, printed)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the demo takes %v", took)
	}
}

// TestObjectStoreOnARealServer runs the conformance suite of object stores
// against the S3 server of a local cluster.
func TestObjectStoreOnARealServer(t *testing.T) {
	t.Parallel()
	c := start(t, "--s3")
	content, err := os.ReadFile(filepath.Join(c.Dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	value := func(key string) string {
		_, rest, _ := strings.Cut(string(content), "\n"+key+": \"")
		text, _, ok := strings.Cut(rest, "\"\n")
		if !ok {
			t.Fatalf("the configuration has no %s", key)
		}
		return text
	}
	cmd := exec.CommandContext(c.ctx, "go", "test", "-tags", "e2e", "-count=1", "./pkg/objectstore/s3")
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "WEIR_TEST_S3_ENDPOINT="+value("s3.endpoint"),
		"WEIR_TEST_S3_ACCESS_KEY="+value("s3.access-key"), "WEIR_TEST_S3_SECRET_KEY="+value("s3.secret-key"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
