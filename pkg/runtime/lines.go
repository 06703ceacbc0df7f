package runtime

import (
	"bufio"
	"errors"
	"io"
)

// lineBytesMax cuts longer lines into pieces: a program that prints without
// line ends must not fill the memory.
const lineBytesMax = 16 << 10

// readLines calls each for every line of r, without its end, until r ends. The
// slice is valid during the call.
func readLines(r io.Reader, each func(line []byte)) error {
	buffered := bufio.NewReaderSize(r, lineBytesMax)
	for {
		line, err := buffered.ReadSlice('\n')
		if n := len(line); n > 0 {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			each(line)
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
