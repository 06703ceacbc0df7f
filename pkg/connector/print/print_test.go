package print_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/connector/print"
	"github.com/weirstream/weir/pkg/operator"
)

type count struct {
	Word  string
	Count int
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	w, err := print.Sink[count]().OpenWriter(&operator.Context{Operator: "counts", Index: 2, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := w.Write(count{"weir", i}); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("printed %q before it was flushed", &out)
	}
	if err := errors.Join(w.Flush(), w.Flush(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "counts[2]> {Word:weir Count:0}\ncounts[2]> {Word:weir Count:1}\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// Input that never pauses does not pile up.
func TestBounded(t *testing.T) {
	var out bytes.Buffer
	w, err := print.Sink[string]().OpenWriter(&operator.Context{Operator: "lines", Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Write(strings.Repeat("x", 20_000)); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "lines[0]> "); got != 2 {
		t.Errorf("%d lines were printed without a flush, want 2", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestPrintError(t *testing.T) {
	w, err := print.Sink[string]().OpenWriter(&operator.Context{Operator: "lines", Output: broken{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write("x"), w.Flush()); err == nil || err.Error() != "print: closed" {
		t.Errorf("error %v", err)
	}
}
