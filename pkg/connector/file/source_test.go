package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/operator"
)

func sourceContext(output io.Writer) operator.SourceContext {
	return operator.SourceContext{Context: &operator.Context{Operator: "lines", Parallelism: 1, Output: output}}
}

// readSplit reads a split from a position, at most so many records, and
// returns the position behind them.
func readSplit[T any](src operator.Source[T], sc operator.SourceContext, split, position []byte, most int) (got []T, at []byte, ended bool, err error) {
	ctx := context.Background()
	r, err := src.OpenReader(ctx, sc, split, position)
	if err != nil {
		return nil, nil, false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	at = position
	for {
		batch, err := r.Fetch(ctx)
		if errors.Is(err, io.EOF) {
			return got, at, true, nil
		}
		if err != nil {
			return got, at, false, err
		}
		for {
			at = batch.Position()
			if len(got) == most {
				return got, at, false, nil
			}
			var v T
			ok, err := batch.Next(&v)
			if err != nil {
				return got, at, false, err
			}
			if !ok {
				break
			}
			got = append(got, v)
		}
		at = batch.Position()
	}
}

// readAll reads all splits to their end.
func readAll[T any](t testing.TB, src operator.Source[T]) []T {
	t.Helper()
	splits, complete, err := src.ListSplits(context.Background(), sourceContext(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !complete {
		t.Error("the split list of files is not complete")
	}
	var all []T
	for _, s := range splits {
		got, _, _, err := readSplit(src, sourceContext(nil), s, nil, -1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

// wantLines is what a reader of text makes of a file's content.
func wantLines(content string) []string {
	if content == "" {
		return nil
	}
	var lines []string
	for _, l := range strings.Split(strings.TrimSuffix(content, "\n"), "\n") {
		lines = append(lines, strings.TrimSuffix(l, "\r"))
	}
	return lines
}

// Any content, any split size, any restarts: every line exactly once, in order.
func TestLinesExactlyOnce(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		// Long runs now and then make lines that are longer than several
		// splits, and than what is read at once.
		pieces := rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\n\n", "x", "yy", "\r", "héllo", ""}),
			rapid.Map(rapid.IntRange(1, 300), func(n int) string { return strings.Repeat("z", n) }),
			rapid.Map(rapid.IntRange(4000, 5000), func(n int) string { return strings.Repeat("w", n) }),
		), 0, 40).Draw(t, "pieces")
		content := strings.Join(pieces, "")
		splitBytes := rapid.Int64Range(1, 400).Draw(t, "split bytes")
		files++
		path := filepath.Join(dir, fmt.Sprint(files))
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		src := file.Lines(path, file.WithSplitBytes(splitBytes))
		splits, _, err := src.ListSplits(context.Background(), sourceContext(nil))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range splits {
			var at []byte
			for ended := false; !ended; {
				most := rapid.IntRange(1, 20).Draw(t, "records before a restart")
				var part []string
				part, at, ended, err = readSplit(src, sourceContext(nil), s, at, most)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, part...)
			}
		}
		if want := wantLines(content); !slices.Equal(got, want) {
			t.Fatalf("content %q in splits of %d:\ngot  %q\nwant %q", content, splitBytes, got, want)
		}
	})
}

// Lines and files around the sizes that are read at once.
func TestLinesAroundChunks(t *testing.T) {
	const chunk = 256 << 10
	for _, long := range []int{chunk - 1, chunk, chunk + 1, 3*chunk + 7} {
		content := strings.Repeat("a", long) + "\n" + strings.Repeat("b\n", 5) + strings.Repeat("c", long)
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, split := range []int64{1000, chunk, 1 << 30} {
			if got, want := readAll(t, file.Lines(path, file.WithSplitBytes(split))), wantLines(content); !slices.Equal(got, want) {
				t.Errorf("line of %d bytes in splits of %d: %d lines, want %d", long, split, len(got), len(want))
			}
		}
	}
}

// A small input is cut so that several subtasks can share it evenly.
func TestDefaultSplits(t *testing.T) {
	tests := []struct {
		bytes int64
		least int
		most  int
	}{
		{0, 0, 0}, {100, 1, 1}, {1 << 20, 40, 64}, {1784866, 48, 48}, {200 << 20, 48, 48}, {2 << 30, 128, 128}, {2 << 40, 1 << 15, 1 << 16},
	}
	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, tt.bytes); err != nil { // sparse
			t.Fatal(err)
		}
		splits, _, err := file.Lines(path).ListSplits(t.Context(), sourceContext(nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(splits) < tt.least || len(splits) > tt.most {
			t.Errorf("%d bytes make %d splits, want %d to %d", tt.bytes, len(splits), tt.least, tt.most)
		}
	}
}

func TestDirectoriesAndPatterns(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"b": "2\n", "a": "1\n", ".hidden": "no\n", "c.txt": "3", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{"": "1 2 3", "*": "1 2 3", ".h*": "no", "[ab]": "1 2", "*.txt": "3"} {
		if got := strings.Join(readAll(t, file.Lines(filepath.Join(dir, pattern))), " "); got != want {
			t.Errorf("%q: got %q, want %q", pattern, got, want)
		}
	}
}

type flight struct {
	Origin string
	Delay  int
	Tags   []string
	Extra  map[string]int
}

// No field of a record keeps the value of the record before.
func TestJSONRecordsShareNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	content := `{"Origin":"DTW","Delay":66,"Tags":["a","b"],"Extra":{"x":1}}` + "\n\n  \n" + `{"Origin":"HNL"}` + "\r\n" + `{"Delay":3,"Extra":{"y":2}}`
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	src := file.JSONLines[flight](path)
	splits, _, err := src.ListSplits(t.Context(), sourceContext(nil))
	if err != nil || len(splits) != 1 {
		t.Fatalf("%d splits, error %v", len(splits), err)
	}
	r, err := src.OpenReader(t.Context(), sourceContext(nil), splits[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	batch, err := r.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var v flight // one variable for all, as the runtime does
	var got []flight
	for {
		ok, err := batch.Next(&v)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, v)
	}
	want := `[{DTW 66 [a b] map[x:1]} {HNL 0 [] map[]} {0 3 [] map[]}]`
	want = strings.Replace(want, "{0 3 [] map[]}", "{ 3 [] map[y:2]}", 1)
	if s := fmt.Sprint(got); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestMalformedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flights.jsonl")
	bad := `{"Origin":"DTW","Delay":"late"` + strings.Repeat("x", 200)
	content := `{"Delay":1}` + "\n" + bad + "\n" + `{"Delay":2}` + "\nnonsense\n" + `{"Delay":3}` + "\n"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	src := file.JSONLines[flight](path)
	splits, _, err := src.ListSplits(t.Context(), sourceContext(nil))
	if err != nil {
		t.Fatal(err)
	}
	got, _, _, err := readSplit(src, sourceContext(nil), splits[0], nil, -1)
	if err == nil || !operator.IsPermanent(err) || len(got) != 1 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	for _, want := range []string{path, "byte 12", `{\"Origin\":\"DTW\"`, "…"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if len(err.Error()) > 400+len(path) {
		t.Errorf("error of %d bytes shows too much of the record", len(err.Error()))
	}

	var output bytes.Buffer
	got, _, _, err = readSplit(file.JSONLines[flight](path, file.SkipMalformed()), sourceContext(&output), splits[0], nil, -1)
	if err != nil || len(got) != 3 {
		t.Errorf("with SkipMalformed: %d records, error %v", len(got), err)
	}
	for _, want := range []string{"lines[0]> skipped: ", "byte 12", "skipped 2 malformed records"} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("output %q does not say %q", output.String(), want)
		}
	}
}

func TestMissingInput(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none.jsonl"), filepath.Join(dir, "*.jsonl"), dir} {
		_, _, err := file.JSONLines[flight](path).ListSplits(t.Context(), sourceContext(nil))
		if err == nil || !operator.IsPermanent(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: error %v, want a permanent one with path and host", path, err)
		}
	}
	// A file that goes away between listing and reading.
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src := file.Lines(path)
	splits, _, err := src.ListSplits(t.Context(), sourceContext(nil))
	if err != nil {
		t.Fatal(err)
	}
	_, at, _, err := readSplit(src, sourceContext(nil), splits[0], nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := readSplit(src, sourceContext(nil), splits[0], at, -1); err == nil || !operator.IsPermanent(err) || !strings.Contains(err.Error(), "it was changed") {
		t.Errorf("truncated file: error %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := readSplit(src, sourceContext(nil), splits[0], nil, -1); err == nil || !operator.IsPermanent(err) {
		t.Errorf("removed file: error %v", err)
	}
}

func TestLineLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("short\n"+strings.Repeat("x", 5000)+"\nshort\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src := file.Lines(path, file.WithLineBytesMax(1000))
	splits, _, err := src.ListSplits(t.Context(), sourceContext(nil))
	if err != nil {
		t.Fatal(err)
	}
	got, _, _, err := readSplit(src, sourceContext(nil), splits[0], nil, -1)
	if len(got) != 1 || !operator.IsPermanent(err) || !strings.Contains(err.Error(), "byte 6 is longer than 1000 bytes") {
		t.Errorf("%d records, error %v", len(got), err)
	}
}

// Bytes of a checkpoint that this source did not write are refused.
func TestForeignSplits(t *testing.T) {
	src := file.Lines("f")
	for _, split := range [][]byte{nil, {0}, {1}, {1, 5}, {1, 5, 2, 'f'}, {9, 1, 2, 'f'}} {
		if _, err := src.OpenReader(t.Context(), sourceContext(nil), split, nil); !operator.IsPermanent(err) {
			t.Errorf("split %v: error %v", split, err)
		}
	}
}

func TestSourceDescribesItself(t *testing.T) {
	d := file.JSONLines[flight]("in", file.WithSplitBytes(7), file.SkipMalformed()).Describe()
	if got := fmt.Sprint(d); got != "{map[connector:file.JSONLines line-bytes-max:16777216 path:in skip-malformed:true split-bytes:7] true}" {
		t.Errorf("described as %s", got)
	}
	for _, bad := range []operator.Source[string]{
		file.Lines(""), file.Lines("["), file.Lines("f", file.WithSplitBytes(-1)), file.Lines("f", file.WithLineBytesMax(0)),
	} {
		if err := bad.(operator.Validator).Validate(); err == nil {
			t.Errorf("%v is valid", bad.Describe())
		}
	}
	if err := file.Lines("f").(operator.Validator).Validate(); err != nil {
		t.Error(err)
	}
}
