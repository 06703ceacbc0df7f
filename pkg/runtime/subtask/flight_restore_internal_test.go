package subtask

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore"
	objectmemory "github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/snapshot"
)

// lengths is a Grouper of records that begin with their length, in two bytes.
type lengths struct{}

// Next implements operator.Grouper.
func (lengths) Next(data []byte) (int, keygroup.Group, error) {
	if len(data) < 2 {
		return 0, 0, errShort
	}
	n := int(binary.LittleEndian.Uint16(data))
	if n > len(data) {
		return 0, 0, errShort
	}
	return n, keygroup.Group(data[2] % 2), nil
}

var errShort = operator.Permanentf("the record is not whole")

// records makes some of these, whose third bytes count up.
func records(sizes ...int) []byte {
	var data []byte
	for i, n := range sizes {
		r := make([]byte, n)
		binary.LittleEndian.PutUint16(r, uint16(n))
		r[2] = byte(i)
		data = append(data, r...)
	}
	return data
}

// restoredHead is the head of a loop that is about to restore what it had logged.
func restoredHead(t *testing.T, memory int64) *restoration {
	t.Helper()
	s := &Subtask{cfg: Config{
		Dir: t.TempDir(), LoopBytesMax: memory, InFlightBytesMax: 4 * memory,
		Graph: &graph.ExecutionGraph{Vertices: make([]graph.Vertex, 1)},
	}, host: &grants{}}
	s.in.channels = []inputChannel{{kind: align.Feedback}}
	s.in.ready.init(1)
	s.loop.init(s)
	s.chain = &operator.Chain{
		Groupers:  []operator.Grouper{lengths{}},
		Operators: []operator.ChainOperator{{Context: &operator.Context{KeyGroups: keygroup.Range{First: 1, Last: 1}}}},
	}
	return &restoration{Subtask: s, flight: make([][]element.Frame, 1)}
}

// restoredBytes is what the channel will deliver, brought back from disk.
func restoredBytes(t *testing.T, x *restoration) (all []byte) {
	t.Helper()
	for i := range x.flight[0] {
		if err := x.loop.load(&x.flight[0][i]); err != nil {
			t.Fatal(err)
		}
		all = append(all, x.flight[0][i].Data...)
	}
	return all
}

// A loop's log may be larger than memory: it is restored as it was kept, and the next
// snapshot has it from where it is.
func TestRestoredLogsStayWithinALoopsMemory(t *testing.T) {
	const memory = 128 << 10
	x := restoredHead(t, memory)
	var sizes []int
	for i := range 400 {
		sizes = append(sizes, 3+i*7)
	}
	sizes = append(sizes, 60_000, 65_535) // about as large as a piece, and larger
	data := records(append(sizes, sizes...)...)
	if err := x.restorePart(coordinator.RestoredPart{Length: int64(len(data))}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	x.handOver()
	s := x.Subtask
	s.in.restore(s)
	if s.loop.onDisk == 0 || s.loop.spilled == 0 || s.loop.queued > memory {
		t.Errorf("%d bytes are in memory and %d frames on disk, %d bytes are allowed in memory", s.loop.queued, s.loop.onDisk, memory)
	}
	f := s.beginFlight(align.Action{Barrier: element.Barrier{Checkpoint: 1}, Collect: true, Delivered: []bool{false}}, 0)
	if f.bytes > memory {
		t.Errorf("the next snapshot copies %d bytes in memory, of %d that are there", f.bytes, memory)
	}
	f.release()
	var have []byte
	for c := &s.in.channels[0]; c.queue.len() > 0; c.queue.pop() {
		first := c.queue.first()
		if err := s.loop.load(first); err != nil {
			t.Fatal(err)
		}
		if n, err := operator.WholeRecords(lengths{}, first.Data); err != nil || n != len(first.Data) {
			t.Fatalf("a frame ends within a record: %d of %d bytes, %v", n, len(first.Data), err)
		}
		have = append(have, first.Data...)
		s.loop.consumed(int64(len(first.Data)))
	}
	if !bytes.Equal(have, data) {
		t.Errorf("%d bytes came back of %d, or others", len(have), len(data))
	}
	if s.loop.queued != 0 || s.loop.onDisk != 0 {
		t.Errorf("of an empty loop %d bytes and %d frames are counted", s.loop.queued, s.loop.onDisk)
	}
	if err := s.loop.close(); err != nil {
		t.Error(err)
	}
}

// At another parallelism a head takes what is its own of the logs of others.
func TestRestoredLogsAreSpreadByKey(t *testing.T) {
	x := restoredHead(t, 1)
	data := records(10, 11, 12, 13, 65_000, 14)
	if err := x.restorePart(coordinator.RestoredPart{Length: int64(len(data)), Rekey: true}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	have := restoredBytes(t, x)
	want := append(append(bytes.Clone(data[10:21]), data[33:46]...), data[65_046:]...)
	if !bytes.Equal(have, want) {
		t.Errorf("the head has %d bytes, want %d: its own records in their order", len(have), len(want))
	}
	if err := x.loop.close(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{"cut": data[:len(data)-3], "none": {1}} {
		if err := x.restorePart(coordinator.RestoredPart{Length: int64(len(bad))}, bytes.NewReader(bad)); err == nil {
			t.Errorf("a log is taken that is %s", name)
		}
	}
}

// A part of a file keeps none of the rest of it in memory.
func TestRestoredPartDoesNotKeepItsFile(t *testing.T) {
	x := &restoration{Subtask: &Subtask{}, flight: make([][]element.Frame, 1)}
	x.in.channels = make([]inputChannel, 1)
	file := bytes.Repeat([]byte{7}, 1<<20)
	if err := x.restorePart(coordinator.RestoredPart{Length: 10}, bytes.NewReader(file[100:])); err != nil {
		t.Fatal(err)
	}
	if d := x.flight[0][0].Data; len(d) != 10 || cap(d) > 1<<10 {
		t.Errorf("%d restored bytes keep %d", len(d), cap(d))
	}
}

// A restored watermark waits behind restored records. The first that its producer
// sends again may be lower.
func TestRestoredWatermarkIsNotLowered(t *testing.T) {
	s := &Subtask{}
	s.cfg.Deployment.Watermarks = []coordinator.RestoredWatermark{{Edge: 0, Watermark: 1000}}
	s.in.channels = []inputChannel{{of: snapshot.ChannelPart{Edge: 0}, toRestore: []element.Frame{{Kind: element.Records, Data: []byte{1}}}}}
	s.in.ready.init(1)
	s.in.restore(s)
	s.in.push(0, element.Frame{Kind: element.WatermarkKind, Watermark: 10})
	if w := s.in.channels[0].queue.at(1).Watermark; w != 1000 {
		t.Errorf("the restored watermark 1000 became %d", w)
	}
	s.in.push(0, element.Frame{Kind: element.WatermarkKind, Watermark: 1010})
	if w := s.in.channels[0].queue.at(1).Watermark; w != 1010 {
		t.Errorf("the watermark is %d, want 1010", w)
	}
}

// What was in flight may have been sent by another subtask than the one that now sends
// what comes behind it, on another channel: it is processed first, all of it. So is
// what a loop had logged, of what comes round.
func TestRestoredRecordsGoBeforeThoseOfAllChannels(t *testing.T) {
	s := &Subtask{}
	s.in.channels = make([]inputChannel, 4)
	s.in.channels[1].toRestore = []element.Frame{{Kind: element.Records, Data: []byte("a")}, {Kind: element.Records, Data: []byte("b")}}
	s.in.channels[2].kind, s.in.channels[3].kind = align.Feedback, align.Feedback
	s.in.channels[3].toRestore = []element.Frame{{Kind: element.Records, Data: []byte("log")}}
	s.in.ready.init(4)
	s.in.restore(s)
	for ch := range s.in.channels {
		s.in.push(ch, element.Frame{Kind: element.Records, Data: []byte{'0' + byte(ch)}})
	}
	var have []string
	for range 7 {
		ch, c, ok := s.in.next(len(have) < 5) // something is on disk for so long
		if !ok {
			t.Fatalf("nothing is delivered after %q", have)
		}
		f := c.queue.pop()
		if c.restored > 0 {
			if last := s.in.tookRestored(c); last != (string(f.Data) == "b") {
				t.Errorf("%q is the last of the restored records: %t", f.Data, last)
			}
		}
		have = append(have, string(f.Data))
		s.in.turn(ch, c)
	}
	at := func(x string) int { return slices.Index(have, x) }
	if at("b") > min(at("0"), at("1")) || at("a") > at("b") || at("log") > min(at("2"), at("3")) {
		t.Errorf("the channels deliver %q", have)
	}
}

// A large file is brought to disk, and is gone from there when it was read.
func TestLargeFilesOfRecordsInFlightAreReadFromDisk(t *testing.T) {
	x := restoredHead(t, 1<<10)
	objects := objectmemory.New("mem://checkpoints")
	x.cfg.Store = checkpointstore.New(func(string) (objectstore.Store, error) { return objects, nil })
	x.cfg.Graph.Edges = make([]graph.PhysicalEdge, 1)
	loc := checkpointstore.CheckpointLocation("mem://checkpoints", "0123456789abcdef0123456789abcdef", 3)
	x.cfg.RestoreBase = loc.Base
	var sizes []int
	for range 100 {
		sizes = append(sizes, 20_000)
	}
	data := records(sizes...)
	handle, err := x.cfg.Store.WriteState(t.Context(), loc, checkpointstore.StateFile{}, 0, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	half := int64(len(data) / 2)
	x.cfg.Deployment.InFlight = []coordinator.RestoredInFlight{{Handle: handle, Parts: []coordinator.RestoredPart{{Length: half}, {Offset: half, Length: half}}}}
	if err := x.readInFlight(t.Context()); err != nil {
		t.Fatal(err)
	}
	have := restoredBytes(t, x)
	if !bytes.Equal(have, data) {
		t.Errorf("%d bytes came back of %d, or others", len(have), len(data))
	}
	if x.report.BytesFetched != int64(len(data)) {
		t.Errorf("%d bytes are reported as fetched, want %d", x.report.BytesFetched, len(data))
	}
	if err := x.loop.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(x.cfg.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left on disk, %v", left, err)
	}
}

// takesAll is an input that processes whatever comes.
type takesAll struct{ operator.Input }

// Process implements operator.Input.
func (takesAll) Process(data []byte, _ *operator.Pace) (int, int, error) { return len(data), 1, nil }

// A subtask says that it is running when the last restored record was processed: there is
// no checkpoint before.
func TestRestoredRecordsAreProcessedBeforeTheSubtaskIsRunning(t *testing.T) {
	host := &reports{}
	s := &Subtask{host: host, phase: restoring, chain: &operator.Chain{Time: &operator.Time{}, Inputs: []operator.Input{takesAll{}}}}
	s.in.channels = make([]inputChannel, 2)
	s.in.channels[0].toRestore = []element.Frame{{Kind: element.Records, Data: []byte("a")}, {Kind: element.Records, Data: []byte("b")}}
	s.in.ready.init(2)
	s.time.s = s
	s.ready()
	s.Receive(1, element.Frame{Kind: element.Records, Data: []byte("new")})
	s.stepInput()
	if len(host.all) > 0 {
		t.Fatalf("it reports %+v before its restored records are processed", host.all)
	}
	s.stepInput()
	if len(host.all) != 1 || host.all[0].(StatusReport).Status != coordinator.Running {
		t.Errorf("it reports %+v", host.all)
	}
	if n := s.in.channels[1].queue.len(); n != 1 {
		t.Errorf("%d new frames are left", n)
	}
}
