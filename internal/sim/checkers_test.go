package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// invariants is how many there are in docs/ARCHITECTURE.md.
const invariants = 12

// TestEachInvariantHasOneChecker requires a file for each of I1 to I12, which
// says what it looks at.
func TestEachInvariantHasOneChecker(t *testing.T) {
	files, err := filepath.Glob("check_i*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != invariants {
		t.Errorf("there are %d files check_i*.go, want %d", len(files), invariants)
	}
	for n := 1; n <= invariants; n++ {
		found, err := filepath.Glob(fmt.Sprintf("check_i%02d_*.go", n))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 {
			t.Errorf("I%d has the files %v, want one", n, found)
			continue
		}
		content, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), fmt.Sprintf("\n// I%d: ", n)) {
			t.Errorf("%s does not begin a comment with I%d:", found[0], n)
		}
		if !strings.Contains(string(content), fmt.Sprintf("fail(%q", fmt.Sprintf("I%d", n))) {
			t.Errorf("%s fails no run for I%d", found[0], n)
		}
	}
}
