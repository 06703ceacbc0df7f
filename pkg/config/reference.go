package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reference returns the text of docs/CONFIG.md: every option with its type,
// default, allowed values and meaning.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" +
		"Generated from `pkg/config` by `go test ./pkg/config -update`; do not edit.\n\n" +
		"Options stand in `conf/config.yaml`, nested or with dots, and are overridden by `-D key=value`. Keys are Flink 2's\n" +
		"where Flink has one; older names in brackets are understood too. Durations are written `500 ms`, `10 min` or `1m30s`,\n" +
		"memory sizes `32 kb` or `1 gb` (powers of 1024).\n\n" +
		"Defaults that differ from Flink's on purpose: " + strings.Join(differFromFlink, ", ") + ".\n")
	for _, section := range []struct {
		scope Scope
		title string
	}{
		{ClusterScope, "Cluster: read by the JobManager and the TaskManagers when they start"},
		{JobScope, "Job: may also be given to `flinkctl submit -D`"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n", section.title)
		for _, key := range slices.Sorted(maps.Keys(registered)) {
			if d := registered[key]; d.scope == section.scope {
				b.WriteString(d.referenceRow())
			}
		}
	}
	return b.String()
}

// differFromFlink are the defaults that someone who knows Flink would not expect.
var differFromFlink = []string{
	differs(CheckpointInterval, "none"),
	differs(CheckpointRetained, "1"),
	differs(CheckpointTolerableFailed, "0: a job whose checkpoints cannot be written goes on here, and shows them as FAILED"),
	differs(HeartbeatInterval, "10 s"),
	differs(HeartbeatTimeout, "50 s"),
}

func differs[T any](o Option[T], flink string) string {
	return fmt.Sprintf("`%s` is `%s` (Flink: %s)", o.Key(), o.definition.defaultText, flink)
}

func (d *definition) referenceRow() string {
	name := "`" + d.key + "`"
	if len(d.aliases) > 0 {
		name += " (`" + strings.Join(d.aliases, "`, `") + "`)"
	}
	byDefault := "empty"
	if d.defaultText != "" {
		byDefault = "`" + d.defaultText + "`"
	}
	doc := d.doc
	if d.secret {
		doc += " Masked wherever configuration is printed."
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", name, d.typeName, byDefault, d.allowed, doc)
}
