package avro_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
)

// allocated is what f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Stored bytes, under the program's schema, give a value that is stored as
// bytes again, or an error; and allocate in proportion.
func FuzzDecode(f *testing.F) {
	c := mustFor[everything](f)
	n := int64(1)
	for _, v := range []everything{{}, {
		S: "s", Bytes: []byte{1}, Inners: []inner{{C: []string{"x"}}}, M: map[string]int32{"a": 1}, Points: map[point]map[bool]string{{1, 2}: {true: "t"}},
		P: &n, Own: own{"o"}, Words: []uint64{1 << 63}, Deep: map[string][]string{"d": {"e"}},
	}} {
		f.Add(c.Append(nil, &v))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var v everything
		var used int
		var err error
		if n := allocated(func() { used, err = c.Decode(src, &v) }); n > 1<<20+uint64(len(src))*1000 {
			t.Fatalf("%d bytes allocated for %d", n, len(src))
		}
		if err != nil {
			return
		}
		if used > len(src) {
			t.Fatalf("%d bytes used of %d", used, len(src))
		}
		stored := c.Append(nil, &v)
		var again everything
		if n, err := c.Decode(stored, &again); err != nil || n != len(stored) || !bytes.Equal(c.Append(nil, &again), stored) {
			t.Fatalf("%d of %d bytes, %v", n, len(stored), err)
		}
	})
}

// Any text as schema and any bytes under it: no panic, no allocation out of
// proportion, and a schema that is read is written as one that is read the same.
func FuzzSchema(f *testing.F) {
	c := mustFor[everything](f)
	v := everything{S: "s", Inners: []inner{{B: "b"}}}
	f.Add(c.Schema(), c.Append(nil, &v))
	old := mustFor[oldWhole](f)
	w := oldWhole{Parts: []oldPart{{Name: "n", Gone: map[string][]string{"a": {"b"}}}}}
	f.Add(old.Schema(), old.Append(nil, &w))
	for _, s := range []string{`"int"`, `["null","string"]`, `{"type":"record","name":"r","fields":[{"name":"title","type":"string"}]}`} {
		f.Add(s, []byte{2, 2, 2})
	}
	targets := mustFor[newWhole](f)
	f.Fuzz(func(t *testing.T, schema string, src []byte) {
		typ, err := avro.ParseSchema(schema)
		if err != nil {
			return
		}
		canonical := typ.Schema()
		again, err := avro.ParseSchema(canonical)
		if err != nil || again.Schema() != canonical {
			t.Fatalf("%s is written as %s and read as %v, %v", schema, canonical, again, err)
		}
		if _, err := avro.Compare(avro.Name, schema, avro.Name, canonical); err != nil && again.String() != typ.String() {
			t.Fatalf("%s does not read itself: %v", schema, err)
		}
		allowed := 1<<20 + uint64(len(src))*1000
		if r, err := codec.ForSchema(c, avro.Name, schema); err == nil {
			var v everything
			if n := allocated(func() { _, _ = r.Decode(src, &v) }); n > allowed {
				t.Fatalf("%d bytes allocated for %d", n, len(src))
			}
		}
		if r, err := codec.ForSchema(targets, avro.Name, schema); err == nil {
			var v newWhole
			if n := allocated(func() { _, _ = r.Decode(src, &v) }); n > allowed {
				t.Fatalf("%d bytes allocated for %d", n, len(src))
			}
		}
	})
}
