package statebackend

import (
	"fmt"

	"github.com/weirstream/weir/pkg/snapshot"
)

// CheckMeta tells whether entries stored under the one description can be
// read under the program's, both of the same state name.
func CheckMeta(stored, program snapshot.StateMeta) error {
	switch {
	case stored.KeySchema != program.KeySchema:
		return fmt.Errorf("state %q: stored with keys %s, the program has %s: the key type of stored state cannot change", stored.Name, stored.KeySchema, program.KeySchema)
	case stored.Kind != program.Kind:
		return fmt.Errorf("state %q: stored as %s, the program has %s", stored.Name, stored.Kind, program.Kind)
	case stored.Codec != program.Codec || stored.Schema != program.Schema:
		return fmt.Errorf("state %q: stored with codec %s as %s, the program has codec %s with %s", stored.Name, stored.Codec, stored.Schema, program.Codec, program.Schema)
	}
	return nil
}
