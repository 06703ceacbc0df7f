package operator_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
)

// sentTo keeps what an output writes to each channel.
type sentTo map[int][]byte

func (s sentTo) Emit(_, ch int, f element.Frame)    { s[ch] = append(s[ch], f.Data...) }
func (s sentTo) NewBuffer() ([]byte, element.Owner) { return nil, nil }
func (s sentTo) CutAt(int, int) int                 { return 64 }

// TestI7OwnedRecordsAreThoseThatTheOutputWouldSend re-keys records, with a
// timestamp and without, and compares with where a hash output sends them.
func TestI7OwnedRecordsAreThoseThatTheOutputWouldSend(t *testing.T) {
	plain, err := codec.For[string]()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keygroup.NewEncoding[string]()
	if err != nil {
		t.Fatal(err)
	}
	key := func(v string) string { return v[:min(2, len(v))] }
	const groups = 12
	rapid.Check(t, func(t *rapid.T) {
		parallelism := rapid.IntRange(1, groups).Draw(t, "parallelism")
		c, read := plain, plain
		at := &operator.Time{Timestamp: 77}
		if rapid.Bool().Draw(t, "stamped") {
			c, read = operator.Stamped(plain, at), operator.Stamped(plain, &operator.Time{})
		}
		sent := sentTo{}
		w := operator.NewWriter(sent, 0, parallelism, 0, parallelism, groups)
		out := operator.NewHashOutput(c, key, keys, w)
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "records") {
			v := rapid.StringMatching(`[a-d]{0,4}`).Draw(t, "record")
			all = c.Append(all, &v)
			if err := out.Collect(v); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		grouper := operator.NewGrouper(read, key, keys, groups)
		total := 0
		for i := range parallelism {
			owned, n, err := operator.OwnedRecords(grouper, all, keygroup.RangeOf(i, parallelism, groups))
			if err != nil {
				t.Fatal(err)
			}
			if string(owned) != string(sent[i]) {
				t.Fatalf("subtask %d owns %q, the output sends it %q", i, owned, sent[i])
			}
			total += n
		}
		if everything, n, err := operator.OwnedRecords(grouper, all, keygroup.Range{Last: groups - 1}); err != nil || n != total || string(everything) != string(all) {
			t.Fatalf("all groups own %d records of %d, %v", n, total, err)
		}
	})
}

func TestBrokenRecordsInFlightAreAnError(t *testing.T) {
	c, err := codec.For[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	grouper := operator.NewGrouper(c, func(v uint64) uint64 { return v }, keys, 4)
	v := uint64(1 << 60)
	data := c.Append(nil, &v)
	data = append(data, data[:len(data)-1]...)
	if _, _, err := operator.OwnedRecords(grouper, data, keygroup.Range{Last: 3}); err == nil || !strings.Contains(err.Error(), "record at byte") {
		t.Errorf("error %v, want one that says where", err)
	}
}
