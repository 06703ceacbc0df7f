package inspect

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// schemaDepthMax bounds how deep types nest in a schema. Types of programs
// stay far below it; a forged schema must not use up the stack.
const schemaDepthMax = 64

// form is how a type is written.
type form uint8

const (
	numberForm form = iota + 1 // name says which
	boolForm
	timeForm
	stringForm
	bytesForm  // an array of count bytes
	structForm // fields
	arrayForm  // count times elem
	sliceForm
	pointerForm
	mapForm
	opaqueForm // marshaler or message: bytes that only their own type reads
)

// schemaType is a type as a schema describes it.
type schemaType struct {
	form   form
	name   string // numberForm: int8, uint64, float32, …; opaqueForm: marshaler or message
	size   int    // numberForm: bytes
	count  int    // bytesForm, arrayForm
	elem   *schemaType
	key    *schemaType // mapForm
	fields []schemaField
	// fixed is set when every value takes min bytes, which is what the derived
	// codec writes first.
	fixed bool
	min   int64
}

type schemaField struct {
	name string
	typ  *schemaType
}

// numberSizes are the numbers that schemas name.
var numberSizes = map[string]int{
	"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
	"float32": 4, "float64": 8, "complex64": 8, "complex128": 16, "byte": 1,
}

// timeSize is what the derived codec takes for a time.
const timeSize = 16

// parseSchema reads the notation that packages codec and keygroup describe
// types in.
func parseSchema(text string) (*schemaType, error) {
	p := schemaParser{rest: text}
	t, err := p.parse(0)
	if err == nil && p.rest != "" {
		err = fmt.Errorf("%q follows its end", p.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("schema %.200q: %w", text, err)
	}
	return t, nil
}

type schemaParser struct{ rest string }

func (p *schemaParser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	if ok {
		p.rest = rest
	}
	return ok
}

// word takes the letters and digits of a name.
func (p *schemaParser) word() string {
	end := strings.IndexAny(p.rest, ",:{}[]()*")
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	return word
}

func (p *schemaParser) parse(depth int) (*schemaType, error) {
	if depth > schemaDepthMax {
		return nil, fmt.Errorf("types nest deeper than %d", schemaDepthMax)
	}
	switch {
	case p.take("struct{"):
		return p.structure(depth)
	case p.take("map["):
		return p.mapping(depth)
	case p.take("[]"):
		elem, err := p.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		if elem.min == 0 {
			return nil, fmt.Errorf("the elements of a slice hold no data")
		}
		return &schemaType{form: sliceForm, elem: elem, min: 1}, nil
	case p.take("["):
		return p.array(depth)
	case p.take("*"):
		elem, err := p.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		return &schemaType{form: pointerForm, elem: elem, min: 1}, nil
	}
	word := p.word()
	switch word {
	case "bool":
		return &schemaType{form: boolForm, fixed: true, min: 1}, nil
	case "time":
		return &schemaType{form: timeForm, fixed: true, min: timeSize}, nil
	case "string":
		return &schemaType{form: stringForm, min: 1}, nil
	case "marshaler", "message":
		if err := p.skipParentheses(); err != nil {
			return nil, err
		}
		return &schemaType{form: opaqueForm, name: word, min: 1}, nil
	}
	size, ok := numberSizes[word]
	if !ok {
		return nil, fmt.Errorf("there is no type %q", word)
	}
	return &schemaType{form: numberForm, name: word, size: size, fixed: true, min: int64(size)}, nil
}

// skipParentheses skips the name of an opaque type, which may be anything in
// which parentheses match.
func (p *schemaParser) skipParentheses() error {
	open := 0
	for i, r := range p.rest {
		switch r {
		case '(':
			open++
		case ')':
			open--
		}
		if open == 0 {
			if i == 0 {
				break
			}
			p.rest = p.rest[i+1:]
			return nil
		}
	}
	return fmt.Errorf("a name in parentheses is missing")
}

func (p *schemaParser) structure(depth int) (*schemaType, error) {
	t := &schemaType{form: structForm, fixed: true}
	for !p.take("}") {
		if len(t.fields) > 0 && !p.take(",") {
			return nil, fmt.Errorf("a struct has no end")
		}
		name := p.word()
		if name == "" || !p.take(":") {
			return nil, fmt.Errorf("a field has no name")
		}
		field, err := p.parse(depth + 1)
		if err != nil {
			return nil, err
		}
		t.fields = append(t.fields, schemaField{name: name, typ: field})
		t.fixed = t.fixed && field.fixed
		t.min = addSizes(t.min, field.min)
	}
	return t, nil
}

func (p *schemaParser) mapping(depth int) (*schemaType, error) {
	key, err := p.parse(depth + 1)
	if err != nil {
		return nil, err
	}
	if !p.take("]") {
		return nil, fmt.Errorf("the key of a map has no end")
	}
	value, err := p.parse(depth + 1)
	if err != nil {
		return nil, err
	}
	if key.min == 0 {
		return nil, fmt.Errorf("the keys of a map hold no data")
	}
	return &schemaType{form: mapForm, key: key, elem: value, min: 1}, nil
}

func (p *schemaParser) array(depth int) (*schemaType, error) {
	digits, rest, ok := strings.Cut(p.rest, "]")
	count, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || count < 0 {
		return nil, fmt.Errorf("an array has no length")
	}
	p.rest = rest
	elem, err := p.parse(depth + 1)
	if err != nil {
		return nil, err
	}
	if elem.form == numberForm && (elem.name == "byte" || elem.name == "uint8") {
		return &schemaType{form: bytesForm, count: int(count), fixed: true, min: count}, nil
	}
	t := &schemaType{form: arrayForm, count: int(count), elem: elem, fixed: elem.fixed || count == 0}
	if elem.min == 0 {
		// Its elements hold no data, so it is shown without them: their number
		// is bounded by no stored bytes.
		t.fixed, t.count = true, 0
	}
	if elem.min > 0 && count > math.MaxInt64/elem.min {
		return nil, fmt.Errorf("an array is too large")
	}
	t.min = count * elem.min
	return t, nil
}

// addSizes adds without going beyond what an int64 holds.
func addSizes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
