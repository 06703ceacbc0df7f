package statebackend_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

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
		func(m *snapshot.StateMeta) (string, string) { m.Codec = "weir/2"; return "weir/1", "weir/2" },
		func(m *snapshot.StateMeta) (string, string) { m.Schema = "int32"; return "int64", "int32" },
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
