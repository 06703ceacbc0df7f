package statebackend_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// FuzzDecodeStored: a stored value, with its header and the time of
// time-to-live, is read into what is stored as the same value, or is corrupt.
func FuzzDecodeStored(f *testing.F) {
	c, err := codec.For[[]string]()
	if err != nil {
		f.Fatal(err)
	}
	clock := &statebackend.Clock{Now: 1_000_000}
	plain := statebackend.PlainForm(c)
	timed := statebackend.TimedForm[[]string]{Codec: c, Clock: clock, TTL: 1000}
	aged := statebackend.TimedForm[[]string]{Codec: c, Clock: clock, TTL: 1000, Ages: true}
	meta := snapshot.StateMeta{Name: "s", Codec: c.Name(), Schema: c.Schema(), SchemaID: 3}
	plainly, err := statebackend.NewSchemas(plain, meta)
	if err != nil {
		f.Fatal(err)
	}
	inTime, err := statebackend.NewSchemas[statebackend.Timed[[]string]](timed, meta)
	if err != nil {
		f.Fatal(err)
	}
	v := []string{"a", "bc"}
	at := statebackend.Timed[[]string]{At: 999_000, Value: v}
	f.Add(statebackend.AppendStored(nil, plain, 3, &v, 0))
	f.Add(statebackend.AppendStored[statebackend.Timed[[]string]](nil, timed, 3, &at, 1_000_000))
	f.Add(statebackend.AppendStored[statebackend.Timed[[]string]](nil, aged, 3, &at, 1_000_000))
	f.Fuzz(func(t *testing.T, stored []byte) {
		var v []string
		plainErr := statebackend.DecodeStored(stored, &plainly, &v)
		var w statebackend.Timed[[]string]
		timedErr := statebackend.DecodeStored(stored, &inTime, &w)
		for _, err := range []error{plainErr, timedErr} {
			if err != nil && !errors.Is(err, statebackend.ErrCorrupt) {
				t.Fatalf("error without a class: %v", err)
			}
		}
		if (plainErr == nil) != (timedErr == nil) {
			t.Fatalf("read without time-to-live: %v, with: %v", plainErr, timedErr)
		}
		if plainErr == nil && (!bytes.Equal(c.Append(nil, &v), c.Append(nil, &w.Value)) || w.At < 0) {
			t.Fatalf("read as %q and as %+v", v, w)
		}
	})
}
