package statebackend

import (
	"fmt"

	"github.com/weirstream/weir/pkg/snapshot"
)

// CheckMeta tells whether entries stored under the one description can be
// read under the program's, both of the same state name, as far as that does
// not depend on the types of values: those are NewSchemas' to compare.
func CheckMeta(stored, program snapshot.StateMeta) error {
	switch {
	case stored.KeySchema != program.KeySchema:
		return fmt.Errorf("state %q: stored with keys %s, the program has %s: the key type of stored state cannot change", stored.Name, stored.KeySchema, program.KeySchema)
	case stored.Kind != program.Kind:
		return fmt.Errorf("state %q: stored as %s, the program has %s", stored.Name, stored.Kind, program.Kind)
	}
	return nil
}
