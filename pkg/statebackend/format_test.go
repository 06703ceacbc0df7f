package statebackend_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Golden bytes: snapshots of this version must be readable for ever.
func TestStoredFormIsFixed(t *testing.T) {
	var buf bytes.Buffer
	w := statebackend.NewWriter(&buf)
	w.Group()
	w.Group()
	w.State(0, 2)
	w.Entry(nil, statebackend.AppendValueHeader(nil, 0, 0))
	w.Entry([]byte("k"), append(statebackend.AppendValueHeader(nil, 300, 1), "value"...))
	w.State(2, 1)
	w.Entry([]byte("x"), append(statebackend.AppendValueHeader(nil, 0, 0), 7))
	w.Group()
	offsets, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(buf.Bytes()), "01"+"0002"+"00020000"+"016b08ac020176616c7565"+"0201"+"017803000007"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	if fmt.Sprint(offsets) != fmt.Sprint([]int{0, 0, buf.Len(), buf.Len()}) {
		t.Errorf("offsets %v", offsets)
	}
	p := statebackend.RestoredPart{Range: keygroup.Range{First: 4, Last: 6}, Offsets: offsets, Data: buf.Bytes()}
	var seen []string
	err = p.Groups(keygroup.Range{First: 5, Last: 90}, func(g keygroup.Group, b []byte) error {
		return statebackend.ReadGroup(b, 3, func(state int, key, value []byte) error {
			id, flags, rest, err := statebackend.ValueHeader(value)
			seen = append(seen, fmt.Sprintf("%d/%d/%s=%d.%d.%q", g, state, key, id, flags, rest))
			return err
		})
	})
	if got, want := fmt.Sprint(seen), `[5/0/=0.0."" 5/0/k=300.1."value" 5/2/x=0.0."\a"]`; err != nil || got != want {
		t.Errorf("read %s, want %s, %v", got, want, err)
	}
}

func TestCheckMetaNamesWhatDiffers(t *testing.T) {
	m := snapshot.StateMeta{Name: "agg", Kind: "value", Codec: "weir/1", Schema: "int64", KeySchema: "key/1:string"}
	if err := statebackend.CheckMeta(m, m); err != nil {
		t.Error(err)
	}
	for _, change := range []func(m *snapshot.StateMeta) (was, is string){
		func(m *snapshot.StateMeta) (string, string) { m.Kind = "list"; return "value", "list" },
		func(m *snapshot.StateMeta) (string, string) {
			m.KeySchema = "key/1:uint64"
			return "key/1:string", "key/1:uint64"
		},
	} {
		o := m
		was, is := change(&o)
		err := statebackend.CheckMeta(m, o)
		if err == nil {
			t.Errorf("%s became %s unnoticed", was, is)
			continue
		}
		for _, part := range []string{`"agg"`, was, is} {
			if !bytes.Contains([]byte(err.Error()), []byte(part)) {
				t.Errorf("error %q does not name %q", err, part)
			}
		}
	}
}

func FuzzReadGroup(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0, 2, 0, 0, 1, 'k', 3, 0, 0, 7})
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, src []byte) {
		n := 0
		err := statebackend.ReadGroup(src, 3, func(state int, key, value []byte) error {
			n += 2 + len(key) + len(value)
			if state > 2 || n > len(src) {
				t.Fatalf("state %d, %d of %d bytes", state, n, len(src))
			}
			_, _, _, err := statebackend.ValueHeader(value)
			return err
		})
		if err != nil && !errors.Is(err, statebackend.ErrCorrupt) {
			t.Error(err)
		}
	})
}

// Values are read by the schema ID in their headers, and by nothing else.
func TestSchemasReadWhatTheSnapshotLists(t *testing.T) {
	c, err := codec.For[int64]()
	if err != nil {
		t.Fatal(err)
	}
	form := statebackend.PlainForm(c)
	own := snapshot.StateMeta{Name: "n", Codec: c.Name(), Schema: c.Schema(), SchemaID: 7}
	schemas, err := statebackend.NewSchemas(form, own)
	if err != nil {
		t.Fatal(err)
	}
	want, got := int64(-3), int64(0)
	if err := statebackend.DecodeStored(statebackend.AppendStored(nil, form, 7, &want, 0), &schemas, &got); err != nil || got != want {
		t.Errorf("read %d, %v", got, err)
	}
	if err := statebackend.DecodeStored(statebackend.AppendStored(nil, form, 6, &want, 0), &schemas, &got); !errors.Is(err, statebackend.ErrCorrupt) {
		t.Errorf("a schema ID that is not listed: %v", err)
	}
	for _, other := range []snapshot.StateMeta{
		{Name: "n", Codec: "other/1", Schema: c.Schema()},
		{Name: "n", Codec: c.Name(), Schema: "string"},
		{Name: "n", Codec: c.Name(), Schema: c.Schema(), Earlier: []snapshot.StoredSchema{{ID: 1, Codec: c.Name(), Schema: "string"}}},
	} {
		if _, err := statebackend.NewSchemas(form, other); err == nil {
			t.Errorf("%+v is read as %s", other, c.Schema())
		}
	}
}
