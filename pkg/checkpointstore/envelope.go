package checkpointstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// An envelope is the outer form of everything stored with a version:
//
//	magic     8 bytes, says what the object is
//	version   uint16
//	features  uint16 count, then for each: uint8 length, name
//	body      uint32 length, bytes
//	crc32c    uint32, of all before
//
// Numbers are big-endian. A feature is named when a reader that does not know
// it would misread the body; fields that may be ignored need none.
const (
	envelopeVersion = 1
	magicLength     = 8
	crcLength       = 4
	// featuresMax bounds the list: a reader must not be led to loop by a
	// corrupt count, and more names than this would mean a new version.
	featuresMax = 64
)

// sealEnvelope makes the stored form of body. Features are sorted first.
func sealEnvelope(magic string, features []string, body []byte) []byte {
	features = slices.Sorted(slices.Values(features))
	out := make([]byte, 0, magicLength+64+len(body))
	out = append(out, magic...)
	out = binary.BigEndian.AppendUint16(out, envelopeVersion)
	out = binary.BigEndian.AppendUint16(out, uint16(len(features)))
	for _, feature := range features {
		out = append(out, byte(len(feature)))
		out = append(out, feature...)
	}
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
	out = append(out, body...)
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// openEnvelope returns the body of what sealEnvelope made. The checksum comes
// first: a newer version is only believed of intact bytes. That fixes, for all
// versions, that the magic leads, the version follows and the checksum ends.
func openEnvelope(magic string, known []string, stored []byte) ([]byte, error) {
	if len(stored) < magicLength || string(stored[:magicLength]) != magic {
		return nil, fmt.Errorf("does not begin with %q: %w", magic, ErrCorrupt)
	}
	if len(stored) < magicLength+2+crcLength {
		return nil, fmt.Errorf("ends after %d bytes: %w", len(stored), ErrCorrupt)
	}
	rest, tail := stored[:len(stored)-crcLength], stored[len(stored)-crcLength:]
	if sum, want := crc32.Checksum(rest, castagnoli), binary.BigEndian.Uint32(tail); sum != want {
		return nil, fmt.Errorf("checksum is %08x, %08x was written: %w", sum, want, ErrCorrupt)
	}
	rest = rest[magicLength:]
	if version := binary.BigEndian.Uint16(rest); version != envelopeVersion {
		return nil, fmt.Errorf("has format version %d, this program reads %d: %w", version, envelopeVersion, ErrUnsupported)
	}
	features, rest, ok := cutFeatures(rest[2:])
	if !ok {
		return nil, fmt.Errorf("list of features is broken: %w", ErrCorrupt)
	}
	for _, feature := range features {
		if !slices.Contains(known, feature) {
			return nil, fmt.Errorf("needs the feature %q: %w", feature, ErrUnsupported)
		}
	}
	if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) != uint64(len(rest)-4) {
		return nil, fmt.Errorf("length of the body is wrong: %w", ErrCorrupt)
	}
	return rest[4:], nil
}

func cutFeatures(in []byte) (features []string, rest []byte, ok bool) {
	if len(in) < 2 {
		return nil, nil, false
	}
	count := binary.BigEndian.Uint16(in)
	in = in[2:]
	if count > featuresMax {
		return nil, nil, false
	}
	for range count {
		if len(in) < 1 || len(in) < 1+int(in[0]) {
			return nil, nil, false
		}
		length := int(in[0])
		features = append(features, string(in[1:1+length]))
		in = in[1+length:]
	}
	return features, in, true
}
