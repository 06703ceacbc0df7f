package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestPackagesHaveCommentsAndSpeakingNames(t *testing.T) {
	commented := map[string]bool{}
	for _, file := range sources(t) {
		// A package of tests alone says what it is in one of them.
		commented[file.pkg] = commented[file.pkg] || file.syntax.Doc.Text() != ""
	}
	for _, pkg := range slices.Sorted(maps.Keys(commented)) {
		if !commented[pkg] {
			t.Errorf("%s has no package comment", pkg)
		}
		if refusedNames[path.Base(pkg)] {
			t.Errorf("%s: the name says nothing about what the package is for", pkg)
		}
	}
}

func TestNobodySleeps(t *testing.T) {
	for _, file := range sources(t) {
		report(t, sleeps(file))
	}
}

// sleeps finds time.Sleep, except in tests of processes and in tests with a
// fake clock, where it takes no time and is exact.
func sleeps(file *sourceFile) (violations []string) {
	if file.isE2E || file.isTest && slices.Contains(sortedImports(file), "testing/synctest") {
		return nil
	}
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok && file.calledOf(selector, "time") == "Sleep" && clockAllowed[file.pkg] == "" {
			violations = append(violations, file.at(node)+" sleeps: wait for what has to happen, with a timer that can be stopped")
		}
		return true
	})
	return violations
}

func TestNoTestIsSkipped(t *testing.T) {
	for _, file := range sources(t) {
		report(t, skips(file))
	}
}

// skips finds calls of Skip and its kin on what looks like a testing.TB, and testing.Short.
func skips(file *sourceFile) (violations []string) {
	if !slices.Contains(sortedImports(file), "testing") {
		return nil
	}
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver, _ := selector.X.(*ast.Ident)
		isTB := receiver != nil && (len(receiver.Name) == 1 || receiver.Name == "tb")
		switch name := selector.Sel.Name; {
		case isTB && (name == "Skip" || name == "Skipf" || name == "SkipNow"),
			file.calledOf(selector, "testing") == "Short":
			violations = append(violations, file.at(node)+" skips a test: one that cannot run fails, or has a build tag")
		}
		return true
	})
	return violations
}

func TestNothingIsLeftForLater(t *testing.T) {
	for _, file := range sources(t) {
		report(t, leftovers(file))
	}
}

func leftovers(file *sourceFile) (violations []string) {
	if file.isGenerated {
		return nil
	}
	for _, group := range file.syntax.Comments {
		for _, word := range strings.FieldsFunc(group.Text(), func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) {
			if slices.Contains(unfinished, word) {
				violations = append(violations, fmt.Sprintf("%s says %s: finish it, or file an issue", file.at(group), word))
			}
		}
	}
	return violations
}
