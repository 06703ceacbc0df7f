package archtest

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the repository's root as seen from this package.
const root = "../.."

// sourceFile is one parsed Go file of the main module.
type sourceFile struct {
	// name and pkg are the paths of the file and its directory below the root, with slashes.
	name, pkg string
	syntax    *ast.File
	positions *token.FileSet
	isTest    bool
	// isE2E files are built for the tests of processes only.
	isE2E       bool
	isGenerated bool
}

// at is where a node stands, for messages.
func (f *sourceFile) at(node ast.Node) string {
	return f.name + ":" + strconv.Itoa(f.positions.Position(node.Pos()).Line)
}

// imports returns the imported paths by the name they have in the file.
func (f *sourceFile) imports() map[string]string {
	byName := map[string]string{}
	for _, spec := range f.syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(importPath)
		if name == "v2" || name == "v3" || name == "v7" {
			name = path.Base(path.Dir(importPath))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "_" {
			name += importPath // several blank imports
		}
		byName[name] = importPath
	}
	return byName
}

// calledOf returns the name of what a selector takes from the package with
// that import path, as "Now" of time.Now, or "".
func (f *sourceFile) calledOf(selector *ast.SelectorExpr, importPath string) string {
	qualifier, ok := selector.X.(*ast.Ident)
	if !ok || f.imports()[qualifier.Name] != importPath {
		return ""
	}
	return selector.Sel.Name
}

// parseSource parses one file; content overrides what is on disk unless it is nil.
func parseSource(name string, content []byte) (*sourceFile, error) {
	if content == nil {
		var err error
		if content, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &sourceFile{
		name: name, pkg: path.Dir(name), syntax: syntax, positions: positions,
		isTest: strings.HasSuffix(name, "_test.go"), isE2E: hasTag(syntax, "e2e"), isGenerated: ast.IsGenerated(syntax),
	}, nil
}

// hasTag reports whether the file is only built with the tag.
func hasTag(syntax *ast.File, tag string) bool {
	for _, group := range syntax.Comments {
		if group.Pos() > syntax.Package {
			break
		}
		for _, comment := range group.List {
			expression, err := constraint.Parse(comment.Text)
			if err == nil && !expression.Eval(func(name string) bool { return name != tag }) {
				return true
			}
		}
	}
	return false
}

// walkRepository calls visit with the path below the root of every file of the
// main module: hidden directories, other modules and build results are left out.
func walkRepository(visit func(name string) error) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return visit(filepath.ToSlash(name))
		}
		if name == "." {
			return nil
		}
		if strings.HasPrefix(entry.Name(), ".") || name == "bin" {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
			return filepath.SkipDir
		}
		return nil
	})
}

// parsed keeps the tree for all tests of this package.
var parsed = sync.OnceValues(func() ([]*sourceFile, error) {
	var files []*sourceFile
	err := walkRepository(func(name string) error {
		// Go itself does not look into testdata either.
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return nil
		}
		file, err := parseSource(name, nil)
		if err != nil {
			return err
		}
		files = append(files, file)
		return nil
	})
	return files, err
})

// sources returns every Go file of the module, in order of their names.
func sources(t *testing.T) []*sourceFile {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// report fails the test once for each violation.
func report(t *testing.T, violations []string) {
	t.Helper()
	for _, violation := range violations {
		t.Error(violation)
	}
}

// fits reports whether a package's path is meant by a pattern of the rules.
func fits(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == prefix || strings.HasPrefix(pkg, prefix+"/")
	}
	return pkg == pattern
}

// isBelow reports whether an import path is the other or lies below it.
func isBelow(importPath, other string) bool {
	return importPath == other || strings.HasPrefix(importPath, other+"/")
}

// layerOf returns the row of the table that fits best.
func layerOf(pkg string) (layer, bool) {
	var best layer
	found := false
	for _, row := range layers {
		if fits(row.path, pkg) && (!found || len(row.path) > len(best.path)) {
			best, found = row, true
		}
	}
	return best, found
}
