package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestSimulatorHasNoCopies keeps machines of its own out of the simulator: what
// it runs are production's, which it may watch and spoil, but not replace.
func TestSimulatorHasNoCopies(t *testing.T) {
	seen := false
	for _, file := range sources(t) {
		seen = seen || file.pkg == "internal/sim"
		report(t, copiedMachines(file))
	}
	if !seen {
		t.Error("there is no simulator")
	}
}

// machine is one of production's that the simulator steps.
type machine struct {
	// methods are some that only it has together, in small letters.
	methods []string
	// embedded is what a type that has them must embed to be no copy; empty
	// where none may have them.
	embedded string
}

var machines = []machine{
	{methods: []string{"barrier", "cancelmarker"}, embedded: "subtask.Aligner"},
	{methods: []string{"isblocked", "endofpartition"}, embedded: "subtask.Aligner"},
	{methods: []string{"step", "nextdeadline"}},
	{methods: []string{"request", "release", "register"}},
	{methods: []string{"trigger", "notifycomplete", "notifyaborted"}},
}

// copiedMachines finds types of the simulator that have the methods of a
// machine and no such machine in them.
func copiedMachines(file *sourceFile) (violations []string) {
	if !fits("internal/sim/...", file.pkg) {
		return nil
	}
	methods := map[string]map[string]bool{}
	embedded := map[string][]string{}
	for _, decl := range file.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				continue
			}
			name := typeName(decl.Recv.List[0].Type)
			if methods[name] == nil {
				methods[name] = map[string]bool{}
			}
			methods[name][strings.ToLower(decl.Name.Name)] = true
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				of, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if fields, ok := of.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						if len(field.Names) == 0 {
							embedded[of.Name.Name] = append(embedded[of.Name.Name], typeName(field.Type))
						}
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		for _, m := range machines {
			has := !slices.ContainsFunc(m.methods, func(method string) bool { return !methods[name][method] })
			if has && (m.embedded == "" || !slices.Contains(embedded[name], m.embedded)) {
				violations = append(violations, fmt.Sprintf("%s: %s has the methods %s: the simulator runs production's machine, and no copy of it",
					file.name, name, strings.Join(m.methods, ", ")))
				break
			}
		}
	}
	return violations
}

// typeName is the name of a type as it is written, without pointers.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}
