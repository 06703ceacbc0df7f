package stream_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/stream"
)

// reading has an unexported field: no codec is derived for it.
type reading struct{ celsius uint64 }

func (r reading) String() string { return fmt.Sprint(r.celsius) }

// readingCodec is a user's codec. It counts what it encodes.
type readingCodec struct{ encoded *int }

func (readingCodec) Name() string            { return "reading/1" }
func (readingCodec) Schema() string          { return "celsius" }
func (readingCodec) Flat() bool              { return true }
func (readingCodec) Clone(dst, src *reading) { *dst = *src }

func (c readingCodec) Append(dst []byte, v *reading) []byte {
	*c.encoded++
	return binary.LittleEndian.AppendUint64(dst, v.celsius)
}

func (readingCodec) Decode(src []byte, v *reading) (int, error) {
	if len(src) < 8 {
		return 0, codec.ErrMalformed
	}
	v.celsius = binary.LittleEndian.Uint64(src)
	return 8, nil
}

// A codec that is given once holds for all operators that pass the records on,
// and for the state of a Reduce.
func TestOwnCodec(t *testing.T) {
	encoded := 0
	out := &collected[reading]{}
	d, err := newDriver(t, func(env *stream.Env) {
		s := stream.Map(stream.From(env, "numbers", valuesOf[uint64](1, 2, 3)),
			func(v uint64) (reading, error) { return reading{v}, nil }, stream.WithCodec[reading](readingCodec{&encoded}))
		s = stream.Filter(s, func(reading) (bool, error) { return true, nil })
		keyed := stream.KeyBy(s, func(r reading) uint64 { return r.celsius % 2 })
		sums := stream.Reduce(keyed, "sums", func(a, b reading) (reading, error) { return reading{a.celsius + b.celsius}, nil })
		stream.To(sums.Rebalance(), "out", out)
	}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(out.got); got != "[1 2 4]" || encoded != 6 {
		t.Errorf("got %s with %d encodings, want [1 2 4] with 6", got, encoded)
	}
	for _, e := range d.program.Graph.Edges[1:] {
		if e.Type != "reading/1:celsius" {
			t.Errorf("edge %s", e)
		}
	}
	states := d.freeze()["sums"][0].States
	if len(states) != 1 || states[0].Codec != "reading/1" || !strings.HasPrefix(states[0].KeySchema, "key/1:") {
		t.Errorf("states in the snapshot: %+v", states)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}
