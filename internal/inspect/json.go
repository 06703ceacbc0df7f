package inspect

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// appendText writes a string. One that is no UTF-8, which JSON cannot hold,
// becomes an object with its bytes.
func appendText(dst []byte, text string) []byte {
	if !utf8.ValidString(text) {
		dst = append(dst, `{"hex":"`...)
		return append(hex.AppendEncode(dst, []byte(text)), `"}`...)
	}
	return appendQuoted(dst, text)
}

// appendObjectKey writes a string where only a string can stand.
func appendObjectKey(dst []byte, text string) []byte {
	if !utf8.ValidString(text) {
		return appendQuoted(dst, "hex:"+hex.EncodeToString([]byte(text)))
	}
	return appendQuoted(dst, text)
}

func appendQuoted(dst []byte, text string) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	// A string that is UTF-8 can always be encoded.
	_ = encoder.Encode(text)
	return append(dst, bytes.TrimSuffix(buffer.Bytes(), []byte{'\n'})...)
}

// appendFloat writes a number as short as it can be read back. JSON has no
// infinities and no NaN: these become strings.
func appendFloat[F float32 | float64](dst []byte, f F) []byte {
	number, err := json.Marshal(f)
	if err != nil {
		return strconv.AppendQuote(dst, strconv.FormatFloat(float64(f), 'g', -1, 64))
	}
	return append(dst, number...)
}
