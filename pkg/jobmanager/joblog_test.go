package jobmanager

import (
	"context"
	"fmt"
	"os"
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

// A JobManager that is killed in the middle of a line loses that line, and
// nothing of what the next one writes.
func TestLogGoesOnBehindHalfALine(t *testing.T) {
	dir := t.TempDir()
	for restart := range 3 {
		l, err := openJobLog(dir, "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.append(lines(restart, restart+1, 10), 0); err != nil {
			t.Fatal(err)
		}
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte{40, 1, 2}); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	read := 0
	err := endedJobLog(dir, "job").read(t.Context(), false, func(m *pb.LogLines) error {
		read += len(m.GetLines())
		return nil
	})
	if err != nil || read != 3 {
		t.Errorf("%d lines were read, want 3 (%v)", read, err)
	}
}

// A file that cannot be made costs the lines of the moment and no more.
func TestLogGoesOnAfterItCouldNotBeRotated(t *testing.T) {
	dir := t.TempDir()
	l, err := openJobLog(dir, "job")
	if err != nil {
		t.Fatal(err)
	}
	fill := func() (failed int) {
		for range logSegmentBytesMax/(1<<20) + 1 {
			if l.append(lines(0, 1, 1<<20), 0) != nil {
				failed++
			}
		}
		return failed
	}
	// Nothing can be renamed onto a directory.
	if err := os.Mkdir(l.path+".1", 0o700); err != nil {
		t.Fatal(err)
	}
	if fill() == 0 {
		t.Fatal("the log was rotated onto a directory")
	}
	if err := os.Remove(l.path + ".1"); err != nil {
		t.Fatal(err)
	}
	if failed := fill(); failed != 0 {
		t.Errorf("%d appends failed afterwards", failed)
	}
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
}
