package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageIsInTheTable(t *testing.T) {
	existing := map[string]bool{}
	for _, file := range sources(t) {
		existing[file.pkg] = true
	}
	for _, pkg := range slices.Sorted(maps.Keys(existing)) {
		if _, ok := layerOf(pkg); !ok {
			t.Errorf("%s has no level: add it to layers in internal/archtest/rules_test.go", pkg)
		}
	}
	for _, row := range layers {
		exists := false
		for pkg := range existing {
			exists = exists || fits(row.path, pkg)
		}
		if !exists {
			t.Errorf("layers has %s, which does not exist", row.path)
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, file := range sources(t) {
		report(t, upwardImports(file))
	}
}

// upwardImports checks code, not tests: a test may use what lies above.
func upwardImports(file *sourceFile) (violations []string) {
	importer, ok := layerOf(file.pkg)
	if !ok || file.isTest {
		return nil
	}
	for _, importPath := range sortedImports(file) {
		imported, ok := strings.CutPrefix(importPath, module+"/")
		if !ok {
			continue
		}
		row, ok := layerOf(imported)
		if ok && row.level > importer.level {
			violations = append(violations, fmt.Sprintf("%s (level %d) imports %s (level %d): %s",
				file.name, importer.level, imported, row.level, upwardReason))
		}
	}
	return violations
}

func TestRefusedImports(t *testing.T) {
	for _, file := range sources(t) {
		report(t, refusedImports(file))
	}
}

func refusedImports(file *sourceFile) (violations []string) {
	for _, importPath := range sortedImports(file) {
		for _, rule := range refusals {
			if rule.refuses(file, importPath) {
				violations = append(violations, fmt.Sprintf("%s imports %s: %s", file.name, importPath, rule.reason))
			}
		}
	}
	return violations
}

func (r refusal) refuses(file *sourceFile, importPath string) bool {
	if !isBelow(importPath, r.imports) || slices.ContainsFunc(r.exempt, func(exempt string) bool { return isBelow(importPath, exempt) }) {
		return false
	}
	if file.isTest && r.inTests {
		return false
	}
	importer, ok := layerOf(file.pkg)
	if !ok || importer.level >= r.from {
		return false
	}
	return !slices.ContainsFunc(r.only, func(pattern string) bool { return fits(pattern, file.pkg) })
}

func sortedImports(file *sourceFile) []string {
	return slices.Sorted(maps.Values(file.imports()))
}

// TestSimulatorRunsProductionsCode keeps copies of the protocols out of internal/sim.
func TestSimulatorRunsProductionsCode(t *testing.T) {
	imported := map[string]map[string]bool{}
	for _, file := range sources(t) {
		if imported[file.pkg] == nil {
			imported[file.pkg] = map[string]bool{}
		}
		for _, importPath := range file.imports() {
			imported[file.pkg][strings.TrimPrefix(importPath, module+"/")] = true
		}
	}
	if !imported[alignerUser][aligner] {
		t.Errorf("%s does not import %s", alignerUser, aligner)
	}
	if imported["internal/sim"] == nil {
		return // not written yet; the table of packages says whether it may be absent
	}
	for _, pkg := range simulatorImports {
		if !imported["internal/sim"][pkg] {
			t.Errorf("internal/sim does not import %s: it has to run production's code, not a copy", pkg)
		}
	}
}

func TestRefusedModules(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := strings.Fields(string(content))
	for _, name := range slices.Sorted(maps.Keys(refusedModules)) {
		if slices.Contains(required, name) {
			t.Errorf("go.mod requires %s: %s", name, refusedModules[name])
		}
	}
}
