package avro

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/pkg/codec"
)

// ChangeKind says what happened to a field.
type ChangeKind uint8

// The changes that values are migrated over.
const (
	Added   ChangeKind = iota + 1 // has its zero value
	Removed                       // what was stored of it is left
	Renamed                       // found by an alias
	Widened                       // to a number type that holds all values of the old one
)

// String is the word that users see.
func (k ChangeKind) String() string {
	return [...]string{"", "added", "removed", "renamed", "widened"}[min(k, Widened)]
}

// Change is a difference between what was stored and what the program has.
type Change struct {
	Kind ChangeKind
	// Field is the path to it: names of the program, [] for elements, [key]
	// for keys; empty for the value itself.
	Field string
	// Old and New are types, or names for Renamed; one is empty where there is none.
	Old, New string
}

// String is one change in words.
func (c Change) String() string {
	where := c.Field
	if where == "" {
		where = "the value"
	}
	switch c.Kind {
	case Added:
		return fmt.Sprintf("added %s %s", where, c.New)
	case Removed:
		return fmt.Sprintf("removed %s %s", where, c.Old)
	case Renamed:
		return fmt.Sprintf("renamed %s from %s", where, c.Old)
	case Widened:
		return fmt.Sprintf("widened %s from %s to %s", where, c.Old, c.New)
	}
	return c.Kind.String()
}

// visitsMax bounds a comparison of schemas that refer to the same types often.
const visitsMax = 100_000

// textMax bounds a type in a message.
const textMax = 200

func shown(t *Type) string {
	s := t.String()
	if len(s) > textMax {
		return s[:textMax] + "…"
	}
	return s
}

// match is how values of one type are read into another: which of the writer's
// fields go where.
type match struct {
	w, r *Type
	// fields are the matches of the writer's fields, to those of the reader's
	// in to; nil where the reader has none.
	fields    []*match
	to        []int
	key, elem *match
	// changed says that something is not as it was.
	changed bool
}

type matcher struct {
	changes []Change
	visits  int
}

// numberBits are the bits of integer kinds; negative ones are signed.
var numberBits = map[Kind]int{Int8: -8, Int16: -16, Int32: -32, Int64: -64, Uint8: 8, Uint16: 16, Uint32: 32, Uint64: 64}

// widens reports whether every number of kind w is one of kind r.
func widens(w, r Kind) bool {
	from, to := numberBits[w], numberBits[r]
	switch {
	case w == Float32:
		return r == Float64
	case from == 0:
		return false
	case r == Float32:
		return max(from, -from) <= 16
	case r == Float64:
		return max(from, -from) <= 32
	case from > 0 && to > 0:
		return from < to
	case from < 0 && to < 0:
		return from > to
	case from > 0 && to < 0:
		return from < -to
	}
	return false
}

// match compares two types. inKey says that they are of map keys, which must
// stay different from each other.
func (m *matcher) match(w, r *Type, path string, inKey bool) (*match, error) {
	if m.visits++; m.visits > visitsMax {
		return nil, fmt.Errorf("the schemas have too many parts to be compared")
	}
	out := &match{w: w, r: r}
	refuse := func() (*match, error) {
		where := "the value"
		if path != "" {
			where = "field " + path
		}
		return nil, fmt.Errorf("%s was %s and is %s, which stored values cannot be turned into", where, shown(w), shown(r))
	}
	if w.Kind != r.Kind {
		if !widens(w.Kind, r.Kind) {
			return refuse()
		}
		m.changes = append(m.changes, Change{Kind: Widened, Field: path, Old: shown(w), New: shown(r)})
		out.changed = true
		return out, nil
	}
	if w.Size != r.Size || w.Of != r.Of {
		return refuse()
	}
	var err error
	if w.Key != nil {
		if out.key, err = m.match(w.Key, r.Key, path+"[key]", true); err != nil {
			return nil, err
		}
		out.changed = out.key.changed
	}
	if w.Elem != nil {
		inside := path
		if w.Kind != Pointer {
			inside += "[]"
		}
		if out.elem, err = m.match(w.Elem, r.Elem, inside, inKey); err != nil {
			return nil, err
		}
		out.changed = out.changed || out.elem.changed
	}
	if w.Kind == Struct {
		err = m.fields(out, path, inKey)
	}
	return out, err
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

func (m *matcher) fields(out *match, path string, inKey bool) error {
	w, r := out.w, out.r
	out.fields, out.to = make([]*match, len(w.Fields)), make([]int, len(w.Fields))
	for i := range out.to {
		out.to[i] = -1
	}
	for i, f := range r.Fields {
		from := w.findField(f.Name)
		for _, a := range f.Aliases {
			if from >= 0 {
				break
			}
			from = w.findField(a)
		}
		field := join(path, f.Name)
		if from < 0 {
			m.changes = append(m.changes, Change{Kind: Added, Field: field, New: shown(f.Type)})
			out.changed = true
			continue
		}
		if out.to[from] >= 0 {
			return fmt.Errorf("fields %s and %s were both %s", field, r.Fields[out.to[from]].Name, w.Fields[from].Name)
		}
		if old := w.Fields[from].Name; old != f.Name {
			m.changes = append(m.changes, Change{Kind: Renamed, Field: field, Old: old, New: f.Name})
		}
		sub, err := m.match(w.Fields[from].Type, f.Type, field, inKey)
		if err != nil {
			return err
		}
		out.fields[from], out.to[from] = sub, i
		out.changed = out.changed || sub.changed || from != i
	}
	for i, f := range w.Fields {
		if out.fields[i] != nil {
			continue
		}
		if inKey {
			return fmt.Errorf("field %s was %s and is gone, which could make keys of a map equal", join(path, f.Name), shown(f.Type))
		}
		m.changes = append(m.changes, Change{Kind: Removed, Field: join(path, f.Name), Old: shown(f.Type)})
		out.changed = true
	}
	return nil
}

// Compare tells how values that were stored with one codec and schema are read
// by a program with another, without their Go types: the changes, or an error
// that names the field that cannot be read and what it was and is.
func Compare(oldCodec, oldSchema, newCodec, newSchema string) ([]Change, error) {
	if oldCodec == newCodec && oldSchema == newSchema {
		return nil, nil
	}
	if newCodec != Name || oldCodec != Name && oldCodec != codec.DerivedName {
		return nil, fmt.Errorf("stored with codec %s as %s, the program has codec %s with %s", oldCodec, oldSchema, newCodec, newSchema)
	}
	r, err := ParseSchema(newSchema)
	if err != nil {
		return nil, fmt.Errorf("of the program: %w", err)
	}
	if oldCodec == codec.DerivedName {
		return nil, asDerived(r, oldSchema)
	}
	w, err := ParseSchema(oldSchema)
	if err != nil {
		return nil, fmt.Errorf("as stored: %w", err)
	}
	var m matcher
	if _, err = m.match(w, r, "", false); err != nil {
		return nil, err
	}
	return m.changes, nil
}

// asDerived checks that values which codec.For's codec has stored are of a type.
func asDerived(t *Type, schema string) error {
	if is := t.String(); is != schema {
		return fmt.Errorf("stored with codec %s as %s, the program has %s: a type stored by that codec must be restored once as it was, after that it may change", codec.DerivedName, clip(schema), clip(is))
	}
	return nil
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 5*textMax)], "") }
