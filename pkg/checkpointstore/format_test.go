package checkpointstore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

func mustEqual(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n  %+v\nwant\n  %+v", got, want)
	}
}

func testRecord() JobRecord {
	return JobRecord{
		Job: jobA, Token: 3, Nonce: "nonce-1", Status: "RUNNING",
		Latest:              CheckpointRef{ID: 7, URI: "s3://bucket/a/chk-7"},
		Retained:            []CheckpointRef{{ID: 6, URI: "s3://bucket/a/chk-6"}, {ID: 7, URI: "s3://bucket/a/chk-7"}},
		NextCheckpointBlock: 1000,
		Savepoints:          []ids.CheckpointID{5},
		StopSavepoint:       true,
		Restarts:            2,
		Cause:               &FailureCause{Kind: "user", Message: "boom", Stack: "goroutine 1", Operator: "delays"},
		StartedAt:           time.UnixMilli(1_700_000_000_000).UTC(),
		EndedAt:             time.UnixMilli(1_700_000_001_000).UTC(),
	}
}

// golden compares with a file of hexadecimal digits: stored bytes must stay
// readable, and the same value must give the same bytes, since a repeated
// write is recognised by its content.
func golden(t *testing.T, file string, content []byte) []byte {
	t.Helper()
	stored, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(stored)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if string(content) != string(want) {
		t.Errorf("%s: encoding gives\n%s\nwhich is not what is stored; stored data must stay readable", file, hex.EncodeToString(content))
	}
	return want
}

func TestMetadataGolden(t *testing.T) {
	content, err := EncodeMetadata(testCheckpoint())
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := DecodeMetadata(golden(t, "metadata-1.hex", content))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, checkpoint, testCheckpoint())
}

func TestRecordGolden(t *testing.T) {
	content, err := EncodeRecord(testRecord())
	if err != nil {
		t.Fatal(err)
	}
	record, err := DecodeRecord(golden(t, "record-1.hex", content))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, record, testRecord())
	first := JobRecord{Job: jobA, Token: 1, Nonce: "n", Status: "CREATED"}
	content, err = EncodeRecord(first)
	if err != nil {
		t.Fatal(err)
	}
	if record, err = DecodeRecord(content); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, record, first)
}

// Every single flipped bit and every cut is noticed.
func TestCorruptionIsNoticed(t *testing.T) {
	content, err := EncodeMetadata(testCheckpoint())
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(content) {
		content[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeMetadata(content); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		content[bit/8] ^= 1 << (bit % 8)
	}
	for length := range content {
		if _, err := DecodeMetadata(content[:length]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes: %v", length, err)
		}
	}
	if _, err := DecodeRecord(content); !errors.Is(err, ErrCorrupt) {
		t.Errorf("metadata was read as a record: %v", err)
	}
}

func TestUnknownFeatureIsRefusedByName(t *testing.T) {
	content := sealEnvelope(metadataMagic, []string{featureSplits, "time-travel"}, nil)
	if _, err := DecodeMetadata(content); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"time-travel"`) {
		t.Errorf("metadata: %v", err)
	}
	content = sealEnvelope(recordMagic, []string{"two-records"}, nil)
	if _, err := DecodeRecord(content); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"two-records"`) {
		t.Errorf("record: %v", err)
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	content := sealEnvelope(metadataMagic, nil, nil)
	binary.BigEndian.PutUint16(content[magicLength:], 2)
	body := content[:len(content)-crcLength]
	binary.BigEndian.PutUint32(content[len(body):], crc32.Checksum(body, castagnoli))
	if _, err := DecodeMetadata(content); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("metadata: %v", err)
	}
}

// What could not be read back is not written.
func TestUnsoundValuesAreNotEncoded(t *testing.T) {
	for name, spoil := range map[string]func(*snapshot.CompletedCheckpoint){
		"no job":            func(c *snapshot.CompletedCheckpoint) { c.Job = "" },
		"no ID":             func(c *snapshot.CompletedCheckpoint) { c.ID = 0 },
		"no kind":           func(c *snapshot.CompletedCheckpoint) { c.Kind = 0 },
		"missing subtask":   func(c *snapshot.CompletedCheckpoint) { c.Operators[0].Subtasks = c.Operators[0].Subtasks[:1] },
		"falling offsets":   func(c *snapshot.CompletedCheckpoint) { c.Operators[1].Subtasks[0].Keyed[0].Offsets[1] = 200 },
		"escaping name":     func(c *snapshot.CompletedCheckpoint) { c.Operators[1].Subtasks[0].Keyed[0].Handle.Name = "../x" },
		"overlong elements": func(c *snapshot.CompletedCheckpoint) { c.Operators[0].Subtasks[0].Lists[0].Elements[0] = 3 },
	} {
		checkpoint := testCheckpoint()
		spoil(checkpoint)
		if _, err := EncodeMetadata(checkpoint); err == nil {
			t.Errorf("%s: was encoded", name)
		}
	}
	record := testRecord()
	record.Nonce = ""
	if _, err := EncodeRecord(record); err == nil {
		t.Error("a record without a nonce was encoded")
	}
}

func TestCauseIsCut(t *testing.T) {
	record := testRecord()
	record.Cause.Message = strings.Repeat("ä", causeTextMax)
	record.Cause.Stack = "broken \xff text"
	content, err := EncodeRecord(record)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := DecodeRecord(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := decoded.Cause.Message; len(got) > causeTextMax+8 || !strings.HasSuffix(got, "(cut)") {
		t.Errorf("message has %d bytes", len(got))
	}
	if got := decoded.Cause.Stack; got != "broken \uFFFD text" {
		t.Errorf("stack is %q", got)
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	content, err := EncodeMetadata(testCheckpoint())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add(sealEnvelope(metadataMagic, []string{featureSplits}, []byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, stored := range [][]byte{content, sealEnvelope(metadataMagic, nil, content)} {
			checkpoint, err := DecodeMetadata(stored)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
					t.Fatalf("error without a class: %v", err)
				}
				continue
			}
			again, err := EncodeMetadata(checkpoint)
			if err != nil {
				t.Fatalf("was read but cannot be written: %v", err)
			}
			reread, err := DecodeMetadata(again)
			if err != nil {
				t.Fatal(err)
			}
			mustEqual(t, reread, checkpoint)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	content, err := EncodeRecord(testRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, stored := range [][]byte{content, sealEnvelope(recordMagic, nil, content)} {
			if _, err := DecodeRecord(stored); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("error without a class: %v", err)
			}
		}
	})
}
