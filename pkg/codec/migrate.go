package codec

import "fmt"

// Migrating is a Codec that can read values which were stored under other
// codecs or schemas.
type Migrating[T any] interface {
	Codec[T]
	// ForSchema is a codec whose Decode reads values that were encoded by the
	// codec and schema of these names, and migrates them to T. Only its Decode
	// is used. An error names the field and what it was and is.
	ForSchema(name, schema string) (Codec[T], error)
}

// ForSchema is the codec that reads what was encoded under a codec's name and
// schema into the values of c.
func ForSchema[T any](c Codec[T], name, schema string) (Codec[T], error) {
	if c.Name() == name && c.Schema() == schema {
		return c, nil
	}
	if m, ok := c.(Migrating[T]); ok {
		return m.ForSchema(name, schema)
	}
	return nil, fmt.Errorf("stored with codec %s as %s, the program has codec %s with %s, which reads no other", name, schema, c.Name(), c.Schema())
}
