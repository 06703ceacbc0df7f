// Command wordcount counts the words of a text.
//
// After every word it gives the word's count so far, on the job's output or,
// with --output, exactly once in files:
//
//	go run ./examples/wordcount
//	go run ./examples/wordcount --input book.txt --output /tmp/words
package main

import (
	"flag"
	"strings"
	"unicode"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/connector/print"
	"github.com/weirstream/weir/pkg/stream"
)

// Flags of the program; stream.Main parses them.
var (
	input  = flag.String("input", "examples/wordcount/text.txt", "count the words of `FILE`")
	output = flag.String("output", "", "write counts to files in `DIR` instead of printing them")
)

// Count is how often a word has come so far.
type Count struct {
	Word  string `json:"word"`
	Count int64  `json:"count"`
}

func main() {
	stream.Main("wordcount", build)
}

func build(env *stream.Env) error {
	lines := stream.From(env, "lines", file.Lines(*input))
	words := stream.FlatMap(lines, split)
	byWord := stream.KeyBy(words, func(c Count) string { return c.Word })
	// Reduce keeps one Count for each word, and emits it after every change.
	counts := stream.Reduce(byWord, "counts", func(sofar, c Count) (Count, error) {
		sofar.Count += c.Count
		return sofar, nil
	})
	if *output == "" {
		stream.To(counts, "out", print.Sink[Count]())
	} else {
		stream.To(counts, "out", file.ExactlyOnce[Count](*output))
	}
	return nil
}

// split emits every word of a line with a count of one.
func split(line string, out stream.Collector[Count]) error {
	for word := range strings.FieldsFuncSeq(strings.ToLower(line), isSeparator) {
		if err := out.Collect(Count{Word: word, Count: 1}); err != nil {
			return err
		}
	}
	return nil
}

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' }
