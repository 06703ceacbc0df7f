package keygroup

import (
	"encoding/binary"
	"math/bits"
)

// The constants of MurmurHash3 x86 32, seed 0.
const (
	murmurC1 = 0xcc9e2d51
	murmurC2 = 0x1b873593
	murmurN  = 0xe6546b64
)

// Hash is MurmurHash3 x86 32 with seed 0 of b. Of the encoded bytes of a key
// it is the key's hash. It never changes: it decides where stored state is.
func Hash(b []byte) uint32 {
	n := len(b)
	var h uint32
	for len(b) >= 4 {
		h = murmurMix(h, binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	var k uint32
	switch len(b) {
	case 3:
		k = uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
	case 2:
		k = uint32(b[1])<<8 | uint32(b[0])
	case 1:
		k = uint32(b[0])
	}
	h ^= bits.RotateLeft32(k*murmurC1, 15) * murmurC2
	return murmurFinish(h ^ uint32(n))
}

// hash8 is Hash of the eight bytes of v in big-endian order, without writing
// them anywhere: a little-endian load of big-endian bytes is a byte swap.
func hash8(v uint64) uint32 {
	h := bits.RotateLeft32(bits.ReverseBytes32(uint32(v>>32))*murmurC1, 15) * murmurC2
	h = bits.RotateLeft32(h, 13)*5 + murmurN
	h ^= bits.RotateLeft32(bits.ReverseBytes32(uint32(v))*murmurC1, 15) * murmurC2
	h = bits.RotateLeft32(h, 13)*5 + murmurN
	return murmurFinish(h ^ 8)
}

func murmurMix(h, k uint32) uint32 {
	h ^= bits.RotateLeft32(k*murmurC1, 15) * murmurC2
	return bits.RotateLeft32(h, 13)*5 + murmurN
}

func murmurFinish(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
