package jobmanager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/pb"
)

func lines(from, to int, size int) []*pb.LogLine {
	var all []*pb.LogLine
	for i := from; i < to; i++ {
		all = append(all, &pb.LogLine{Source: "s", Text: fmt.Sprintf("%d %s", i, strings.Repeat("x", size))})
	}
	return all
}

func TestLogFollowsUntilTheJobEndsAndIsBounded(t *testing.T) {
	l, err := openJobLog(t.TempDir(), "job")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan []string, 1)
	started := make(chan struct{})
	go func() {
		var got []string
		err := l.read(context.Background(), true, func(m *pb.LogLines) error {
			if got == nil {
				close(started)
			}
			for _, line := range m.GetLines() {
				number, _, _ := strings.Cut(line.GetText(), " ")
				got = append(got, number)
			}
			return nil
		})
		if err != nil {
			got = append(got, err.Error())
		}
		read <- got
	}()
	if err := l.append(lines(0, 1, 0), 0); err != nil {
		t.Fatal(err)
	}
	<-started
	// A little more than one file: the reader holds the first one open.
	const size, count = 64 << 10, logSegmentBytesMax/(64<<10) + 10
	for i := 1; i < count; i++ {
		if err := l.append(lines(i, i+1, size), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	got := <-read
	if len(got) != count {
		t.Fatalf("%d lines were read, want %d", len(got), count)
	}
	for i, number := range got {
		if number != fmt.Sprint(i) {
			t.Fatalf("line %d is %s", i, number)
		}
	}
}

func TestLogKeepsTheNewestAndSaysWhatWasDropped(t *testing.T) {
	dir := t.TempDir()
	l, err := openJobLog(dir, "job")
	if err != nil {
		t.Fatal(err)
	}
	const size, count = 1 << 20, 30
	for i := range count {
		if err := l.append(lines(i, i+1, size), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.append(nil, 7); err != nil {
		t.Fatal(err)
	}
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	var last string
	n := 0
	if err := endedJobLog(dir, "job").read(t.Context(), true, func(m *pb.LogLines) error {
		n += len(m.GetLines())
		last = m.GetLines()[len(m.GetLines())-1].GetText()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n < 8 || n > 17 {
		t.Errorf("%d lines of 1 MiB are kept, want between one and two files of 8 MiB", n)
	}
	if !strings.Contains(last, "7 lines were dropped") {
		t.Errorf("last line: %.100q", last)
	}
	if err := l.remove(); err != nil {
		t.Error(err)
	}
	if err := endedJobLog(dir, "job").read(t.Context(), false, nil); err != nil {
		t.Errorf("log that is gone: %v", err)
	}
}
