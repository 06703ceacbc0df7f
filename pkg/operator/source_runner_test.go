package operator

import (
	"testing"

	"pgregory.net/rapid"
)

// TestFinishedSplitsRoundTrip compares the bitmap with a set.
func TestFinishedSplitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b bitmap
		want := map[int64]bool{}
		for _, i := range rapid.SliceOf(rapid.Int64Range(0, 500)).Draw(t, "a") {
			a.set(i)
			want[i] = true
		}
		for _, i := range rapid.SliceOf(rapid.Int64Range(0, 500)).Draw(t, "b") {
			b.set(i)
			want[i] = true
		}
		a.or(b)
		decoded, err := decodeBitmap(a.encode())
		if err != nil {
			t.Fatal(err)
		}
		last := int64(-1)
		for i := range decoded.all() {
			if i <= last || !want[i] {
				t.Fatalf("split %d after %d: not one that was set, or out of order", i, last)
			}
			last = i
			delete(want, i)
		}
		if len(want) > 0 {
			t.Fatalf("splits %v are missing", want)
		}
	})
}

// FuzzFinishedSplits: stored bytes that are no bitmap are an error.
func FuzzFinishedSplits(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBitmap(data)
		if (err == nil) != (len(data)%8 == 0) {
			t.Fatalf("%d bytes: error %v", len(data), err)
		}
		if err == nil && string(b.encode()) != string(data) {
			t.Fatal("decoding and encoding changed the bytes")
		}
	})
}
