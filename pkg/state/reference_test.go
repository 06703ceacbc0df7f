package state_test

import (
	"os"
	"strings"
	"testing"
)

// The code in docs/STATE.md is that of the examples, which compile and run.
func TestReferenceIsCurrent(t *testing.T) {
	doc, err := os.ReadFile("../../docs/STATE.md")
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, file := range []string{"example_test.go", "../stream/example_broadcast_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code += unindented(string(b))
	}
	blocks := strings.Split(string(doc), "```go\n")[1:]
	if len(blocks) < 9 {
		t.Errorf("%d pieces of code", len(blocks))
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.Contains(code, unindented(b)) {
			t.Errorf("this is in no example:\n%s", b)
		}
	}
}

func unindented(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
