package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MemorySize is a number of bytes.
type MemorySize int64

// The units of memory sizes.
const (
	Byte MemorySize = 1
	KiB             = 1024 * Byte
	MiB             = 1024 * KiB
	GiB             = 1024 * MiB
	TiB             = 1024 * GiB
)

// memoryUnits lists the names of each unit, largest first; the first name of each is what String prints.
var memoryUnits = []struct {
	size  MemorySize
	names []string
}{
	{TiB, []string{"tb", "t", "tib", "tebibytes"}},
	{GiB, []string{"gb", "g", "gib", "gibibytes"}},
	{MiB, []string{"mb", "m", "mib", "mebibytes"}},
	{KiB, []string{"kb", "k", "kib", "kibibytes"}},
	{Byte, []string{"b", "", "bytes"}},
}

// ParseMemorySize reads Flink's form of a memory size, as in "32 kb", "256mb",
// "1 gib" or plain bytes. All units are powers of 1024, as in Flink.
func ParseMemorySize(text string) (MemorySize, error) {
	number, unit := splitUnit(text)
	value, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, problem(`is not a memory size: use a whole number and a unit, as in "32 kb"`)
	}
	for _, candidate := range memoryUnits {
		for _, name := range candidate.names {
			if name != unit {
				continue
			}
			if value > math.MaxInt64/int64(candidate.size) {
				return 0, problem("is more bytes than fit into 64 bits")
			}
			return MemorySize(value) * candidate.size, nil
		}
	}
	return 0, problem(fmt.Sprintf("has the unknown unit %q: use b, kb, mb, gb or tb", unit))
}

// String prints the size in the largest unit that divides it, as in "32 kb".
// ParseMemorySize reads it back.
func (m MemorySize) String() string {
	for _, unit := range memoryUnits {
		if m != 0 && m%unit.size == 0 {
			return fmt.Sprintf("%d %s", m/unit.size, unit.names[0])
		}
	}
	return fmt.Sprintf("%d b", int64(m))
}

// durationUnits lists the names of each unit, largest first; the first name of each is what FormatDuration prints.
var durationUnits = []struct {
	size  time.Duration
	names []string
}{
	{24 * time.Hour, []string{"d", "day", "days"}},
	{time.Hour, []string{"h", "hour", "hours"}},
	{time.Minute, []string{"min", "m", "minute", "minutes"}},
	{time.Second, []string{"s", "sec", "secs", "second", "seconds"}},
	{time.Millisecond, []string{"ms", "milli", "millis", "millisecond", "milliseconds", ""}},
	{time.Microsecond, []string{"µs", "us", "micro", "micros", "microsecond", "microseconds"}},
	{time.Nanosecond, []string{"ns", "nano", "nanos", "nanosecond", "nanoseconds"}},
}

// ParseDuration reads a duration in Flink's form, as in "1 s", "500 ms" or
// "10 min", or in Go's, as in "1m30s". A number without a unit is
// milliseconds, as in Flink. It is never negative.
func ParseDuration(text string) (time.Duration, error) {
	number, unit := splitUnit(text)
	if value, err := strconv.ParseInt(number, 10, 64); err == nil {
		for _, candidate := range durationUnits {
			for _, name := range candidate.names {
				if name != unit {
					continue
				}
				if value > math.MaxInt64/int64(candidate.size) {
					return 0, problem("is longer than 292 years")
				}
				return time.Duration(value) * candidate.size, nil
			}
		}
	}
	if value, err := time.ParseDuration(text); err == nil && value >= 0 {
		return value, nil
	}
	return 0, problem(`is not a duration: use a number and a unit out of ns, µs, ms, s, min, h and d, as in "500 ms"`)
}

// FormatDuration prints the duration in the largest unit that divides it, as
// in "10 min". ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0 s"
	}
	for _, unit := range durationUnits {
		if d%unit.size == 0 {
			return fmt.Sprintf("%d %s", d/unit.size, unit.names[0])
		}
	}
	panic("config: every duration is whole nanoseconds")
}

// splitUnit cuts "32 kb" into its digits and its unit in lower case.
func splitUnit(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	return text[:end], strings.ToLower(strings.TrimSpace(text[end:]))
}

func parseInt(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, problem("is not a whole number")
	}
	return value, nil
}

func parseFloat(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, problem("is not a number")
	}
	return value, nil
}

// PortRange is the ports that a server tries in order. 0 to 0 lets the system choose.
type PortRange struct{ First, Last int }

// String prints "6123" or "50100-50200"; parsePortRange reads it back.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

const portMax = 65535

func parsePortRange(text string) (PortRange, error) {
	const form = `is not a port or a range of ports: use 0 to 65535, as in "6123" or "50100-50200"`
	left, right, isRange := strings.Cut(text, "-")
	if !isRange {
		right = left
	}
	first, err := strconv.Atoi(strings.TrimSpace(left))
	if err != nil {
		return PortRange{}, problem(form)
	}
	last, err := strconv.Atoi(strings.TrimSpace(right))
	if err != nil || first < 0 || last > portMax || first > last || first == 0 && last != 0 {
		return PortRange{}, problem(form)
	}
	return PortRange{First: first, Last: last}, nil
}

func portRangeOption(s settings, defaultText string) Option[PortRange] {
	return register(s, "ports", defaultText, "a port, or a range as in 50100-50200; 0 lets the system choose", parsePortRange)
}

// storageSchemes are those that pkg/objectstore can open.
var storageSchemes = []string{"file", "s3"}

// parseStorageURI checks a directory in an object store and brings it into one
// form: an absolute path becomes a file URI, a trailing slash goes. Empty stays empty.
func parseStorageURI(text string) (string, error) {
	const form = "is not a storage directory: use file:///absolute/path, s3://bucket/prefix or an absolute path"
	if text == "" {
		return "", nil
	}
	if strings.HasPrefix(text, "/") {
		text = "file://" + text
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "", problem(form)
	}
	rest = strings.TrimRight(rest, "/")
	switch scheme {
	case "file":
		if text == "file:///" {
			return text, nil
		}
		if !strings.HasPrefix(rest, "/") {
			return "", problem(form)
		}
	case "s3":
		if rest == "" || strings.HasPrefix(rest, "/") {
			return "", problem(form)
		}
	default:
		return "", problem(fmt.Sprintf("has the unknown scheme %q: use %s", scheme, strings.Join(storageSchemes, " or ")))
	}
	return scheme + "://" + rest, nil
}

// storageOption is a directory for files that outlive their process.
func storageOption(s settings) Option[string] {
	return register(s, "storage directory", "", "file:///absolute/path, s3://bucket/prefix or an absolute path", parseStorageURI)
}
