package file

import (
	"encoding/binary"
	"fmt"
)

// split is a byte range of a file. It owns the lines that start at Start or
// later and before End.
type split struct {
	path       string
	start, end int64
}

// splitVersion is the first byte of an encoded split: splits live in
// checkpoints, which a later version of the program must be able to read.
const splitVersion = 1

func (s split) encode() []byte {
	out := []byte{splitVersion}
	out = binary.AppendUvarint(out, uint64(s.start))
	out = binary.AppendUvarint(out, uint64(s.end))
	return append(out, s.path...)
}

func decodeSplit(data []byte) (split, error) {
	if len(data) == 0 || data[0] != splitVersion {
		return split{}, fmt.Errorf("split of %d bytes is not of version %d", len(data), splitVersion)
	}
	rest := data[1:]
	start, n := binary.Uvarint(rest)
	if n <= 0 {
		return split{}, fmt.Errorf("split of %d bytes has no start", len(data))
	}
	rest = rest[n:]
	end, n := binary.Uvarint(rest)
	if n <= 0 || start > end || int64(end) < 0 {
		return split{}, fmt.Errorf("split of %d bytes has no end behind its start", len(data))
	}
	return split{path: string(rest[n:]), start: int64(start), end: int64(end)}, nil
}

// encodePosition makes the position of a reader whose next line starts at offset.
func encodePosition(offset int64) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(offset))
}

func decodePosition(data []byte) (int64, error) {
	if len(data) != 8 || int64(binary.LittleEndian.Uint64(data)) < 0 {
		return 0, fmt.Errorf("position of %d bytes is not a byte offset", len(data))
	}
	return int64(binary.LittleEndian.Uint64(data)), nil
}

// Bounds of the default split size.
const (
	// splitsWanted divides evenly among 2, 3, 4, 6, 8, 12, 16 and 24 subtasks:
	// a small input keeps all of them busy to the end.
	splitsWanted = 48
	// splitBytesMin keeps the cost of opening a split below that of reading it.
	splitBytesMin = 16 << 10
	// splitBytesMax lets a subtask that falls behind be at most some seconds late.
	splitBytesMax = 16 << 20
	// splitsMax bounds the split list, which is part of every checkpoint:
	// larger inputs get larger splits.
	splitsMax = 1 << 16
)

// defaultSplitBytes is the split size for an input of total bytes.
func defaultSplitBytes(total int64) int64 {
	size := min(max((total+splitsWanted-1)/splitsWanted, splitBytesMin), splitBytesMax)
	return max(size, (total+splitsMax-1)/splitsMax)
}

// cut appends the splits of a file of the given size.
func cut(splits [][]byte, path string, size, splitBytes int64) [][]byte {
	for start := int64(0); start < size; start += splitBytes {
		splits = append(splits, split{path: path, start: start, end: min(start+splitBytes, size)}.encode())
	}
	return splits
}
