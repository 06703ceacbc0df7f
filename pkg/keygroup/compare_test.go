package keygroup_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
)

type compared struct {
	S string
	I int16
	U uint32
	B bool
	A [3]byte
	T string
	L int64
	N int
}

// Compare agrees with the order of the encoded bytes, whatever the type.
func TestCompareIsTheOrderOfTheBytes(t *testing.T) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "a\x00", "a\x00\x01", "a\x01", "\x00", "\xff"}), rapid.String())
	t.Run("string", func(t *testing.T) { compareRun(t, text) })
	t.Run("int64", func(t *testing.T) { compareRun(t, rapid.Int64()) })
	t.Run("uint64", func(t *testing.T) { compareRun(t, rapid.Uint64()) })
	t.Run("int8", func(t *testing.T) { compareRun(t, rapid.Int8()) })
	t.Run("bool", func(t *testing.T) { compareRun(t, rapid.Bool()) })
	t.Run("struct", func(t *testing.T) {
		compareRun(t, rapid.Custom(func(t *rapid.T) compared {
			return compared{
				S: text.Draw(t, "s"), I: rapid.Int16Range(-1, 1).Draw(t, "i"), U: rapid.Uint32Range(0, 1).Draw(t, "u"),
				B: rapid.Bool().Draw(t, "b"), A: [3]byte{rapid.ByteRange(0, 1).Draw(t, "a")}, T: text.Draw(t, "t"),
				L: rapid.Int64Range(-1, 1).Draw(t, "l"), N: rapid.IntRange(-1, 1).Draw(t, "n"),
			}
		}))
	})
}

func compareRun[K comparable](t *testing.T, keys *rapid.Generator[K]) {
	e, err := keygroup.NewEncoding[K]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys.Draw(t, "a"), keys.Draw(t, "b")
		if got, want := e.Compare(&a, &b), bytes.Compare(e.Append(nil, &a), e.Append(nil, &b)); got != want {
			t.Fatalf("Compare(%v, %v) = %d, their bytes give %d", a, b, got, want)
		}
	})
}
