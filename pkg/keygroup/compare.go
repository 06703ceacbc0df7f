package keygroup

import (
	"cmp"
	"strings"
	"unsafe"
)

// Compare orders two keys as their encoded bytes are ordered, without
// encoding them: numbers by value, strings and arrays by their bytes, false
// before true, structs field by field.
func (e *Encoding[K]) Compare(a, b *K) int {
	switch e.form {
	case formWord:
		return cmp.Compare(*(*uint64)(unsafe.Pointer(a))^e.flip, *(*uint64)(unsafe.Pointer(b))^e.flip)
	case formString:
		return strings.Compare(*(*string)(unsafe.Pointer(a)), *(*string)(unsafe.Pointer(b)))
	case formSteps:
	}
	for i := range e.steps {
		if c := e.steps[i].compare(unsafe.Pointer(a), unsafe.Pointer(b)); c != 0 {
			return c
		}
	}
	return 0
}

func (s *keyStep) compare(a, b unsafe.Pointer) int {
	a, b = unsafe.Add(a, s.offset), unsafe.Add(b, s.offset)
	switch s.kind {
	case stepUint:
		return cmp.Compare(s.unsigned(a), s.unsigned(b))
	case stepInt:
		// Flipping the sign bit, as the encoding does, makes the order that of unsigned numbers.
		sign := uint64(1) << (8*s.size - 1)
		return cmp.Compare(s.unsigned(a)^sign, s.unsigned(b)^sign)
	case stepWide:
		return cmp.Compare(*(*uint)(a), *(*uint)(b))
	case stepWideI:
		return cmp.Compare(*(*int)(a), *(*int)(b))
	case stepBool, stepBytes:
		return strings.Compare(unsafe.String((*byte)(a), s.size), unsafe.String((*byte)(b), s.size))
	case stepString:
		return strings.Compare(*(*string)(a), *(*string)(b))
	}
	return 0
}

// unsigned is the integer of the step's size at p.
func (s *keyStep) unsigned(p unsafe.Pointer) uint64 {
	switch s.size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}
