package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1 s": time.Second, "1s": time.Second, "500 ms": 500 * time.Millisecond, "10 min": 10 * time.Minute,
		"10m": 10 * time.Minute, "1m30s": 90 * time.Second, "1.5s": 1500 * time.Millisecond, "2 days": 48 * time.Hour,
		"250": 250 * time.Millisecond, " 3 H ": 3 * time.Hour, "7 us": 7 * time.Microsecond, "0": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is read as %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "1 fortnight", "-1 s", "1,5 s", "9999999 d", "1 s 2"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestParseMemorySize(t *testing.T) {
	for text, want := range map[string]MemorySize{
		"32 kb": 32 * KiB, "256mb": 256 * MiB, "1 gib": GiB, "2 T": 2 * TiB, "17": 17, "0 b": 0, "5 bytes": 5,
	} {
		if got, err := ParseMemorySize(text); err != nil || got != want {
			t.Errorf("%q is read as %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "kb", "1.5 kb", "-1 kb", "9999999999 tb", "99999999999999999999"} {
		if got, err := ParseMemorySize(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestPrintedValuesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := time.Duration(rapid.Int64Min(0).Draw(t, "duration"))
		if got, err := ParseDuration(FormatDuration(duration)); err != nil || got != duration {
			t.Errorf("duration %v came back as %v, %v", duration, got, err)
		}
		size := MemorySize(rapid.Int64Min(0).Draw(t, "size"))
		if got, err := ParseMemorySize(size.String()); err != nil || got != size {
			t.Errorf("size %d came back as %v, %v", int64(size), got, err)
		}
	})
}

func TestPortRange(t *testing.T) {
	for text, want := range map[string]PortRange{"0": {}, "6123": {6123, 6123}, "50100-50200": {50100, 50200}} {
		got, err := parsePortRange(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is read as %v, %v", text, got, err)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abcd", "bcd", 1}} {
		if got := editDistance(test.a, test.b); got != test.want {
			t.Errorf("distance of %q and %q is %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
