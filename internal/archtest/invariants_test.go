package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	isNumbered = regexp.MustCompile(`^I[0-9]+$`)
	// mention finds I3 in prose, in scripts and in names such as
	// TestI3AckAfterExpiry, and I1I2 where a test is of several.
	mention  = regexp.MustCompile(`(?:^|[^A-Za-z0-9]|Test)((?:I[0-9]+)+)(?:[^0-9]|$)`)
	numbered = regexp.MustCompile(`I[0-9]+`)
)

func TestInvariantsAreCheckedAndTested(t *testing.T) {
	checked := map[string][]string{}
	for _, file := range sources(t) {
		if file.isTest {
			continue
		}
		for name, places := range invariantChecks(file) {
			checked[name] = append(checked[name], places...)
		}
	}
	tested := testedInvariants(t)
	for _, name := range slices.Sorted(maps.Keys(checked)) {
		if !slices.Contains(invariants, name) {
			t.Errorf("%s checks the unknown invariant %s", strings.Join(checked[name], ", "), name)
		}
	}
	for _, name := range invariants {
		if checked[name] == nil {
			t.Errorf("%s appears in no invariant.Check", name)
		}
		if !tested[name] {
			t.Errorf("%s appears in no test", name)
		}
	}
}

// invariantChecks returns where the file checks each numbered invariant. Checks
// with a short name in place of the number are of matters that have none.
func invariantChecks(file *sourceFile) map[string][]string {
	places := map[string][]string{}
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || file.calledOf(selector, module+"/internal/invariant") != "Check" {
			return true
		}
		literal, ok := call.Args[1].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if name, err := strconv.Unquote(literal.Value); err == nil && isNumbered.MatchString(name) {
			places[name] = append(places[name], file.at(call))
		}
		return true
	})
	return places
}

// testedInvariants reads test files and the scripts that they run.
func testedInvariants(t *testing.T) map[string]bool {
	t.Helper()
	tested := map[string]bool{}
	err := walkRepository(func(name string) error {
		isScript := strings.Contains(name, "testdata/") && path.Ext(name) != ".go"
		if !isScript && !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/archtest/") {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return fmt.Errorf("look for invariants: %w", err)
		}
		for _, match := range mention.FindAllSubmatch(content, -1) {
			for _, name := range numbered.FindAll(match[1], -1) {
				tested[string(name)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tested
}
