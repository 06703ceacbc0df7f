package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestEveryOptionIsRead finds configuration keys that are accepted and change nothing.
func TestEveryOptionIsRead(t *testing.T) {
	declared, read := map[string]bool{}, map[string]bool{}
	for _, file := range sources(t) {
		switch {
		case file.isTest:
		case strings.HasPrefix(file.name, "pkg/config/options_"):
			maps.Copy(declared, declaredOptions(file))
		default:
			ast.Inspect(file.syntax, func(node ast.Node) bool {
				if selector, ok := node.(*ast.SelectorExpr); ok {
					read[file.calledOf(selector, module+"/pkg/config")] = true
				}
				return true
			})
		}
	}
	if len(declared) == 0 {
		t.Fatal("no options found in pkg/config")
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !read[name] && unreadOptions[name] == "" {
			t.Errorf("nothing reads config.%s: wire it, or take the key out", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unreadOptions)) {
		if !declared[name] {
			t.Errorf("unreadOptions has %s, which pkg/config does not declare", name)
		}
	}
}

// declaredOptions returns the exported variables that a file of options declares.
func declaredOptions(file *sourceFile) map[string]bool {
	names := map[string]bool{}
	for _, declaration := range file.syntax.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for _, name := range value.Names {
				if name.IsExported() {
					names[name.Name] = true
				}
			}
		}
	}
	return names
}
