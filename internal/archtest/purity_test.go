package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"testing"
)

func TestPurePackagesArePure(t *testing.T) {
	for _, file := range sources(t) {
		if row, ok := layerOf(file.pkg); !ok || !row.pure || file.isTest {
			continue
		}
		report(t, impureUses(file))
		report(t, clockUses(file))
		report(t, concurrency(file))
	}
}

func impureUses(file *sourceFile) (violations []string) {
	for _, importPath := range sortedImports(file) {
		if slices.Contains(pureBelow, importPath) {
			continue
		}
		for _, refused := range slices.Sorted(maps.Keys(impureImports)) {
			if isBelow(importPath, refused) && !isAllowed(impureAllowed, file.name, importPath) {
				violations = append(violations, fmt.Sprintf("%s is pure and imports %s: %s", file.name, importPath, impureImports[refused]))
			}
		}
	}
	return violations
}

func isAllowed(list []allowance, file, what string) bool {
	return slices.ContainsFunc(list, func(a allowance) bool { return a.file == file && a.what == what })
}

// TestClocksAndRandomnessStayInShells holds for parts too, pure or not.
func TestClocksAndRandomnessStayInShells(t *testing.T) {
	for _, file := range sources(t) {
		row, ok := layerOf(file.pkg)
		if !ok || row.level >= shells || file.isTest || clockAllowed[file.pkg] != "" {
			continue
		}
		report(t, clockUses(file))
	}
}

// clockUses finds calls that read a clock, wait for one, or draw from the
// global generator.
func clockUses(file *sourceFile) (violations []string) {
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if name := file.calledOf(selector, "time"); clockCalls[name] {
			violations = append(violations, fmt.Sprintf("%s uses time.%s: below the shells the time is an argument", file.at(node), name))
		}
		if name := file.calledOf(selector, "math/rand/v2"); name != "" && !seededRandom[name] {
			violations = append(violations, fmt.Sprintf("%s uses rand.%s: below the shells randomness is an argument", file.at(node), name))
		}
		return true
	})
	return violations
}

func TestThreadlessPackagesStayThatWay(t *testing.T) {
	for _, file := range sources(t) {
		if threadless[file.pkg] == "" || file.isTest {
			continue
		}
		report(t, concurrency(file))
		for _, importPath := range sortedImports(file) {
			// Atomics are counters that others read; a lock would mean that others write.
			if importPath == "sync" {
				t.Errorf("%s imports sync: %s", file.name, threadless[file.pkg])
			}
		}
	}
}

// concurrency finds goroutines, channels and what is done with them.
func concurrency(file *sourceFile) (violations []string) {
	found := func(node ast.Node, what string) {
		violations = append(violations, fmt.Sprintf("%s has %s: one goroutine owns each machine, and it is its shell's", file.at(node), what))
	}
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			found(node, "a go statement")
		case *ast.SelectStmt:
			found(node, "a select statement")
		case *ast.SendStmt:
			found(node, "a send")
		case *ast.ChanType:
			found(node, "a channel")
		case *ast.UnaryExpr:
			if node.Op == token.ARROW {
				found(node, "a receive")
			}
		}
		return true
	})
	return violations
}

func TestGoroutinesStartInListedPlaces(t *testing.T) {
	for _, file := range sources(t) {
		if !file.isTest && !mayStartGoroutines(file) {
			report(t, goroutines(file))
		}
	}
}

func mayStartGoroutines(file *sourceFile) bool {
	for place := range goroutinesAllowed {
		if place == file.name || fits(place, file.pkg) {
			return true
		}
	}
	return false
}

// goroutines finds go statements and calls of a method Go, which starts one in
// sync.WaitGroup and errgroup.Group.
func goroutines(file *sourceFile) (violations []string) {
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		starts := false
		switch node := node.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			selector, ok := node.Fun.(*ast.SelectorExpr)
			starts = ok && selector.Sel.Name == "Go"
		}
		if starts {
			violations = append(violations, file.at(node)+" starts a goroutine: "+
				"it belongs to a shell, or into goroutinesAllowed in internal/archtest/rules_test.go with who waits for it")
		}
		return true
	})
	return violations
}
