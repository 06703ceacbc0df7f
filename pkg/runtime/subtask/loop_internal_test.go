package subtask

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// grants counts the credit that a subtask gives.
type grants struct {
	Host
	bytes int64
}

func (g *grants) Grant(_ int, credit int64) { g.bytes += credit }

// content is that of frame i: its length differs from that of others.
func content(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 30_000+i) }

func TestFullLoopsGoToDiskAndComeBackInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "subtask")
	host := &grants{}
	s := &Subtask{cfg: Config{Dir: dir, Graph: &graph.ExecutionGraph{Vertices: make([]graph.Vertex, 1)}}, host: host}
	l := &s.loop
	l.init(s)
	var queue []element.Frame
	var sent int64
	for i := range 300 {
		f := element.Frame{Kind: element.Records, Data: content(i)}
		sent += int64(len(f.Data))
		if !l.received(0, &f) {
			t.Fatalf("frame %d was not taken", i)
		}
		queue = append(queue, f)
	}
	if host.bytes != sent {
		t.Errorf("credit for %d bytes was given at once, want %d", host.bytes, sent)
	}
	if l.queued > loopBytesMax || l.spilled != sent-l.queued || l.spilled == 0 {
		t.Errorf("%d bytes are in memory and %d went to disk, of %d", l.queued, l.spilled, sent)
	}
	// A snapshot still reads the last frame when its turn has come and gone.
	last := queue[len(queue)-1].Owner.(*spilledFrame)
	last.pin()
	for i := range queue {
		f := &queue[i]
		if err := l.load(f); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Data, content(i)) {
			t.Fatalf("frame %d came back as %d bytes of %d", i, len(f.Data), f.Data[0])
		}
		l.consumed(int64(len(f.Data)))
	}
	if l.queued != 0 || l.onDisk != 0 {
		t.Errorf("%d bytes and %d frames on disk are counted in an empty queue", l.queued, l.onDisk)
	}
	f := element.Frame{Kind: element.Records, Data: content(7)}
	again, err := l.spill.write(f.Data)
	if err != nil {
		t.Fatal(err)
	}
	if again.offset == 0 {
		t.Error("space is used again that somebody still reads")
	}
	if data, err := io.ReadAll(last.reader()); err != nil || !bytes.Equal(data, content(299)) {
		t.Errorf("the pinned frame has %d bytes, %v", len(data), err)
	}
	again.Free()
	last.unpin()
	if once, err := l.spill.write(f.Data); err != nil || once.offset != 0 {
		t.Errorf("an empty file is written on at %+v, %v", once, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

// While something is on disk, records from outside wait for what is in the loop;
// control elements do not.
func TestFullLoopsTakeNothingFromOutside(t *testing.T) {
	in := &inputs{channels: make([]inputChannel, 3)}
	in.channels[0].kind, in.channels[1].kind, in.channels[2].kind = align.Overtakable, align.Feedback, align.Overtakable
	in.ready.init(3)
	records := element.Frame{Kind: element.Records, Data: []byte{1}}
	in.push(0, records)
	in.push(2, records)
	if _, _, ok := in.next(true); ok {
		t.Error("records from outside are taken")
	}
	in.push(1, records)
	if ch, c, ok := in.next(true); !ok || ch != 1 {
		t.Errorf("channel %d is next, %t, want what came round", ch, ok)
	} else {
		c.queue.pop()
		in.turn(ch, c)
	}
	in.channels[2].queue.pop()
	in.push(2, element.BarrierFrame(element.Barrier{Checkpoint: 1}))
	if ch, _, ok := in.next(true); !ok || ch != 2 {
		t.Errorf("channel %d is next, %t, want the barrier", ch, ok)
	}
	for range 2 {
		ch, c, ok := in.next(false)
		if !ok {
			t.Fatal("nothing is next although both channels have something")
		}
		c.queue.pop()
		in.turn(ch, c)
	}
	if _, _, ok := in.next(false); ok {
		t.Error("something is left")
	}
}

// A barrier that overtakes may take the snapshot of a loop's body in front of the
// last watermark, or while timers fire: then the loop is not over.
func TestALoopIsNotOverWhileTimersAreLeft(t *testing.T) {
	s := &Subtask{}
	s.loop.s, s.loop.isMember = s, true
	s.time.s, s.time.valve, s.time.reached = s, watermark.NewValve(2), []int64{watermark.None, watermark.None}
	over := func(want bool, what string) {
		t.Helper()
		if s.loop.isOver() != want {
			t.Errorf("%s, and that it is over is %t", what, !want)
		}
	}
	over(false, "the last watermark has not come")
	s.time.valve.Watermark(0, watermark.Max)
	s.time.valve.Status(1, true)
	s.time.reached = []int64{watermark.Max, watermark.Max}
	over(false, "a channel is idle, which is not its end")
	s.time.valve.End(1)
	s.time.reached[1] = 7
	over(false, "the second operator's timers have not fired")
	s.time.reached[1], s.time.firing = watermark.Max, true
	over(false, "there are timers to be fired")
	s.time.firing = false
	over(true, "nothing is left")
	s.loop.isHead = true
	over(false, "the inputs of a head have not ended")
	s.loop.inputEnded = true
	over(true, "they have")
	s.loop.isMember = false
	over(false, "the subtask is of no loop")
}

// A loop that never gets empty goes on for ever on the disk that its content takes.
func TestFilesOfALoopGoWhenTheyAreRead(t *testing.T) {
	dir := t.TempDir()
	x := spill{dir: dir, fileMax: 100}
	var queue []*spilledFrame
	read := func() {
		t.Helper()
		data, err := io.ReadAll(queue[0].reader())
		if err != nil || len(data) != 30 {
			t.Fatalf("read %d bytes, %v", len(data), err)
		}
		queue[0].unpin()
		queue = queue[1:]
	}
	for i := range 1000 {
		f, err := x.write(bytes.Repeat([]byte{byte(i)}, 30))
		if err != nil {
			t.Fatal(err)
		}
		if queue = append(queue, f); len(queue) > 10 {
			read()
		}
		// Four frames make a file full: ten are in four at most.
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 4 {
			t.Fatalf("after %d frames: %d files, %v", i+1, len(entries), err)
		}
	}
	for len(queue) > 0 {
		read()
	}
	if err := x.close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

// The last watermark goes on in a loop and not out of it: what is behind the loop is
// restored at the one before, or what leaves later would be late there.
func TestTheLastWatermarkHasNotLeftTheLoop(t *testing.T) {
	s := &Subtask{}
	s.loop.inner = []bool{true, false}
	s.chain = &operator.Chain{Operators: make([]operator.ChainOperator, 1)}
	s.time = eventTime{s: s, passed: []int64{watermark.None}, outside: []int64{watermark.None}}
	s.time.pass(0, 100)
	s.time.pass(0, watermark.Max)
	if in, out := s.time.sentOn(0, 0), s.time.sentOn(0, 1); in != watermark.Max || out != 100 {
		t.Errorf("inside it is %d and outside %d, want the last and 100", in, out)
	}
}
