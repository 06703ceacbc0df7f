package config

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/CONFIG.md")

func TestReferenceIsCurrent(t *testing.T) {
	const file = "../../docs/CONFIG.md"
	if *update {
		if err := os.WriteFile(file, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(content) != Reference() {
		t.Errorf("docs/CONFIG.md is stale: run `go test ./pkg/config -update` and commit the result")
	}
}

// TestOptionsAreDocumented holds every declaration to a full one.
func TestOptionsAreDocumented(t *testing.T) {
	for key, d := range registered {
		if d.doc == "" || d.doc[len(d.doc)-1] != '.' {
			t.Errorf("%s: the doc %q is no sentence", key, d.doc)
		}
	}
}
