package snapshot

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/pb"
)

var (
	drawUID = rapid.Custom(func(t *rapid.T) ids.OperatorUID {
		return ids.OperatorUID(rapid.StringMatching(`[a-z][a-z0-9_.-]{0,9}`).Draw(t, "uid"))
	})
	drawName = rapid.StringMatching(`[a-z0-9]{1,5}(/[a-z0-9-]{1,5}){0,2}`)

	drawHandle = rapid.Custom(func(t *rapid.T) StateHandle {
		if rapid.Bool().Draw(t, "inline") {
			h := StateHandle{CRC32C: rapid.Uint32().Draw(t, "crc")}
			if bytes := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes"); len(bytes) > 0 {
				h.Inline, h.Size = bytes, int64(len(bytes))
			}
			return h
		}
		return StateHandle{
			Name: drawName.Draw(t, "name"), Size: rapid.Int64Range(0, 1<<40).Draw(t, "size"), CRC32C: rapid.Uint32().Draw(t, "crc"),
			SharedSince: ids.CheckpointID(rapid.Uint64Range(0, 9).Draw(t, "shared since")),
		}
	})

	drawMeta = rapid.Custom(func(t *rapid.T) StateMeta {
		text := rapid.StringN(0, 5, 20)
		m := StateMeta{
			Name: drawName.Draw(t, "state"), Kind: text.Draw(t, "kind"), Codec: text.Draw(t, "codec"),
			Schema: text.Draw(t, "schema"), KeySchema: text.Draw(t, "key schema"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "earlier") {
			m.Earlier = append(m.Earlier, StoredSchema{ID: m.SchemaID, Codec: text.Draw(t, "codec"), Schema: text.Draw(t, "schema")})
			m.SchemaID++
		}
		return m
	})

	drawKeyed = rapid.Custom(func(t *rapid.T) KeyedStateHandle {
		k := KeyedStateHandle{Handle: drawHandle.Draw(t, "handle"), States: nilIfEmpty(rapid.SliceOfN(drawMeta, 0, 3).Draw(t, "states"))}
		k.Range.First = keygroup.Group(rapid.IntRange(0, 100).Draw(t, "first"))
		k.Range.Last = k.Range.First + keygroup.Group(rapid.IntRange(0, 27).Draw(t, "more"))
		if rapid.Bool().Draw(t, "in files") {
			k.Handle, k.Backend = StateHandle{}, "files"
			k.Files = nilIfEmpty(rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) StateFile {
				return StateFile{Local: rapid.StringMatching(`[a-z0-9]{1,4}`).Draw(t, "local"), Handle: drawHandle.Draw(t, "handle")}
			}), 0, 3, func(f StateFile) string { return f.Local }).Draw(t, "files"))
			return k
		}
		for offset := int64(0); len(k.Offsets) <= k.Range.Len(); {
			offset = rapid.Int64Range(offset, k.Handle.Size).Draw(t, "offset")
			k.Offsets = append(k.Offsets, offset)
		}
		return k
	})

	drawList = rapid.Custom(func(t *rapid.T) OperatorStateHandle {
		l := OperatorStateHandle{
			Name: drawName.Draw(t, "list"), Handle: drawHandle.Draw(t, "handle"),
			Redistribution: rapid.SampledFrom([]Redistribution{SplitEvenly, Union, ByIndex}).Draw(t, "redistribution"),
		}
		rest := l.Handle.Size
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			length := rapid.Int64Range(0, rest).Draw(t, "length")
			l.Elements = append(l.Elements, length)
			rest -= length
			if l.Redistribution == ByIndex {
				l.Indexes = append(l.Indexes, rapid.Int64Min(0).Draw(t, "index"))
			}
		}
		l.States = nilIfEmpty(rapid.SliceOfN(drawMeta, 0, 2).Draw(t, "states"))
		return l
	})

	drawSubtaskState = rapid.Custom(func(t *rapid.T) SubtaskState {
		s := SubtaskState{
			Subtask:   ids.SubtaskID{Vertex: ids.VertexID(rapid.Int32Min(0).Draw(t, "vertex")), Index: rapid.Int32Min(0).Draw(t, "index")},
			EndOfData: rapid.Bool().Draw(t, "end of data"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "operators") {
			s.Operators = append(s.Operators, OperatorSubtaskState{
				UID:   drawUID.Draw(t, "operator"),
				Keyed: nilIfEmpty(rapid.SliceOfN(drawKeyed, 0, 2).Draw(t, "keyed")),
				Lists: nilIfEmpty(rapid.SliceOfN(drawList, 0, 2).Draw(t, "lists")),
			})
		}
		s.InFlight = nilIfEmpty(rapid.SliceOfN(drawInFlight, 0, 2).Draw(t, "in flight"))
		for range rapid.IntRange(0, 2).Draw(t, "emitted") {
			s.Emitted = append(s.Emitted, EmittedWatermark{
				Edge: rapid.IntRange(0, 5).Draw(t, "edge"), Watermark: rapid.Int64().Draw(t, "watermark"), Idle: rapid.Bool().Draw(t, "idle"),
			})
		}
		s.LoopIsEmpty = rapid.Bool().Draw(t, "loop is empty")
		return s
	})

	// drawInFlight is for edges 0 to 2 with two subtasks at each end.
	drawInFlight = rapid.Custom(func(t *rapid.T) InFlight {
		f := InFlight{Handle: drawHandle.Draw(t, "handle")}
		end := int64(0)
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			p := ChannelPart{
				Edge: rapid.IntRange(0, 2).Draw(t, "edge"), Producer: rapid.Int32Range(0, 1).Draw(t, "producer"),
				Consumer: rapid.Int32Range(0, 1).Draw(t, "consumer"), Output: rapid.Bool().Draw(t, "output"),
			}
			p.Offset = rapid.Int64Range(end, f.Handle.Size).Draw(t, "offset")
			p.Length = rapid.Int64Range(0, f.Handle.Size-p.Offset).Draw(t, "length")
			end = p.Offset + p.Length
			f.Parts = append(f.Parts, p)
		}
		return f
	})
)

func nilIfEmpty[E any](list []E) []E {
	if len(list) == 0 {
		return nil
	}
	return list
}

// What is acknowledged arrives as it was.
func TestSubtaskStateOverTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawSubtaskState.Draw(t, "state")
		bytes, err := proto.Marshal(want.ToProto())
		if err != nil {
			t.Fatal(err)
		}
		var message pb.SubtaskState
		if err := proto.Unmarshal(bytes, &message); err != nil {
			t.Fatal(err)
		}
		got, err := SubtaskStateFromProto(&message)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n  %+v\nwant\n  %+v", got, want)
		}
	})
}

func soundCheckpoint() *CompletedCheckpoint {
	return &CompletedCheckpoint{
		Job: "a1b2c3d4e5f60718293a4b5c6d7e8f90", ID: 7, Attempt: ids.AttemptID{Token: 2, Number: 1}, Kind: StopSavepoint,
		TriggeredAt: time.UnixMilli(1).UTC(), JobName: "job",
		Operators: []OperatorState{{
			UID: "op", Parallelism: 1, MaxParallelism: 4, Subtasks: []OperatorSubtaskState{{
				UID: "op",
				Keyed: []KeyedStateHandle{{
					Handle: StateHandle{Name: "chk-7/1.1-0.0.0", Size: 10}, Range: keygroup.Range{First: 1, Last: 3}, Offsets: []int64{2, 4, 4, 9},
				}},
				Lists: []OperatorStateHandle{{
					Name: "list", Redistribution: ByIndex, Handle: StateHandle{Size: 3, Inline: []byte("abc")}, Elements: []int64{1, 2}, Indexes: []int64{4, 0},
				}},
			}},
		}},
		Splits:     []SplitList{{UID: "op", Splits: []Split{{Data: []byte("s")}}, Complete: true}},
		EndOfData:  []EndedSubtask{{UID: "op", Index: 0}},
		Savepoints: []ids.CheckpointID{1, 2},
		InFlight: []InFlight{{
			Handle: StateHandle{Name: "chk-7/1.1-0.0.1", Size: 9},
			Parts:  []ChannelPart{{Producer: 1, Length: 4}, {Consumer: 2, Output: true, Offset: 4, Length: 5}},
		}},
		Edges: []EdgeState{{Name: "op[] -> to[0]", Type: "int", Partitioner: "hash", Producers: 2, Consumers: 3, Watermark: -5, HasWatermark: true}},
	}
}

func TestCompletedCheckpointOverTheWire(t *testing.T) {
	got, err := CompletedCheckpointFromProto(soundCheckpoint().ToProto())
	if err != nil {
		t.Fatal(err)
	}
	if want := soundCheckpoint(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n  %+v\nwant\n  %+v", got, want)
	}
}

// What no sound value could have made is refused, with a reason.
func TestUnsoundMessagesAreRefused(t *testing.T) {
	keyed := func(p *pb.CompletedCheckpoint) *pb.KeyedStateHandle { return p.Operators[0].Subtasks[0].Keyed[0] }
	list := func(p *pb.CompletedCheckpoint) *pb.OperatorStateHandle { return p.Operators[0].Subtasks[0].Lists[0] }
	for reason, spoil := range map[string]func(*pb.CompletedCheckpoint){
		"job id":                      func(p *pb.CompletedCheckpoint) { p.JobId = "../../etc" },
		"has no ID":                   func(p *pb.CompletedCheckpoint) { p.Id = 0 },
		"kind 9 is unknown":           func(p *pb.CompletedCheckpoint) { p.Kind = 9 },
		"kind 0 is unknown":           func(p *pb.CompletedCheckpoint) { p.Kind = 0 },
		"not between 1 and 32768":     func(p *pb.CompletedCheckpoint) { p.Operators[0].MaxParallelism = 1 << 20 },
		"parallelism 9":               func(p *pb.CompletedCheckpoint) { p.Operators[0].Parallelism = 9 },
		"of 0 subtasks, want 1":       func(p *pb.CompletedCheckpoint) { p.Operators[0].Subtasks = nil },
		"state of operator other":     func(p *pb.CompletedCheckpoint) { p.Operators[0].Subtasks[0].Uid = "other" },
		"UID is empty":                func(p *pb.CompletedCheckpoint) { p.Operators[0].Subtasks[0] = nil },
		"groups 1-3, of 3":            func(p *pb.CompletedCheckpoint) { p.Operators[0].MaxParallelism = 3 },
		"handle is missing":           func(p *pb.CompletedCheckpoint) { keyed(p).Handle = nil },
		"keyed state handle":          func(p *pb.CompletedCheckpoint) { p.Operators[0].Subtasks[0].Keyed[0] = nil },
		"not a range":                 func(p *pb.CompletedCheckpoint) { keyed(p).FirstGroup = 4 },
		"not a range of groups":       func(p *pb.CompletedCheckpoint) { keyed(p).LastGroup = 1 << 31 },
		"has 3 offsets, want 4":       func(p *pb.CompletedCheckpoint) { keyed(p).Offsets = keyed(p).Offsets[1:] },
		"offset 1 is 1, after 2":      func(p *pb.CompletedCheckpoint) { keyed(p).Offsets[1] = 1 },
		"offset 0 is -1":              func(p *pb.CompletedCheckpoint) { keyed(p).Offsets[0] = -1 },
		"end at 9 of 8 bytes":         func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Size = 8 },
		"has size -1":                 func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Size = -1 },
		"not a clean relative name":   func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Name = "chk-7/../../x" },
		"clean relative name":         func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Name = "/etc/passwd" },
		"at most 1024":                func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Name = strings.Repeat("x", 1025) },
		"a name and inline bytes":     func(p *pb.CompletedCheckpoint) { keyed(p).Handle.Inline = []byte("x") },
		"state has no name":           func(p *pb.CompletedCheckpoint) { keyed(p).States = []*pb.StateMeta{nil} },
		"has 3 bytes but says 4":      func(p *pb.CompletedCheckpoint) { list(p).Handle.Size = 4 },
		"\"list\": state has no name": func(p *pb.CompletedCheckpoint) { list(p).States = []*pb.StateMeta{{Kind: "list"}} },
		"operator state has no name":  func(p *pb.CompletedCheckpoint) { list(p).Name = "" },
		"redistribution 7":            func(p *pb.CompletedCheckpoint) { list(p).Redistribution = 7 },
		"redistribution 0":            func(p *pb.CompletedCheckpoint) { list(p).Redistribution = 0 },
		"element 1 has length 3":      func(p *pb.CompletedCheckpoint) { list(p).Elements[1] = 3 },
		"element 0 has length -1":     func(p *pb.CompletedCheckpoint) { list(p).Elements[0] = -1 },
		"has 1 indexes, want 2":       func(p *pb.CompletedCheckpoint) { list(p).Indexes = list(p).Indexes[:1] },
		"has 2 indexes, want 0":       func(p *pb.CompletedCheckpoint) { list(p).Redistribution = pb.Redistribution_REDISTRIBUTION_UNION },
		"index 0 is -4":               func(p *pb.CompletedCheckpoint) { list(p).Indexes[0] = -4 },
		"split list":                  func(p *pb.CompletedCheckpoint) { p.Splits[0] = nil },
		"ended subtask":               func(p *pb.CompletedCheckpoint) { p.EndOfData[0] = nil },
		"to 10 of a file of 9 bytes":  func(p *pb.CompletedCheckpoint) { p.InFlight[0].Parts[1].Length = 6 },
		"in flight at 3 to 8":         func(p *pb.CompletedCheckpoint) { p.InFlight[0].Parts[1].Offset = 3 },
		"in flight: state handle":     func(p *pb.CompletedCheckpoint) { p.InFlight[0].Handle = nil },
		"channel -1 to 0":             func(p *pb.CompletedCheckpoint) { p.InFlight[0].Parts[0].Producer = -1 },
		"edge 1 of 1":                 func(p *pb.CompletedCheckpoint) { p.InFlight[0].Parts[0].Edge = 1 },
		"from subtask 2 to 0":         func(p *pb.CompletedCheckpoint) { p.InFlight[0].Parts[0].Producer = 2 },
		"edge has no name":            func(p *pb.CompletedCheckpoint) { p.Edges[0].Name = "" },
		"leads from 0 subtasks":       func(p *pb.CompletedCheckpoint) { p.Edges[0].Producers = 0 },
		"op has index -2":             func(p *pb.CompletedCheckpoint) { p.EndOfData[0].Index = -2 },
	} {
		message := soundCheckpoint().ToProto()
		spoil(message)
		if c, err := CompletedCheckpointFromProto(message); err == nil || c != nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: error is %v", reason, err)
		}
	}
	for reason, message := range map[string]*pb.SubtaskState{
		"subtask is missing":       nil,
		"subtask -1/0 is negative": {Subtask: &pb.SubtaskID{Vertex: -1}},
		"subtask 0/0: operator":    {Subtask: &pb.SubtaskID{}, Operators: []*pb.OperatorSubtaskState{nil}},
	} {
		if _, err := SubtaskStateFromProto(message); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: error is %v", reason, err)
		}
	}
}

func FuzzSubtaskStateFromProto(f *testing.F) {
	checkpoint := soundCheckpoint()
	seed, err := proto.Marshal(SubtaskState{Operators: checkpoint.Operators[0].Subtasks}.ToProto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var message pb.SubtaskState
		if proto.Unmarshal(bytes, &message) != nil {
			return
		}
		state, err := SubtaskStateFromProto(&message)
		if err != nil {
			return
		}
		state.EachHandle(func(h StateHandle) {
			if h.Size < 0 || h.IsInline() && int64(len(h.Inline)) != h.Size {
				t.Fatalf("unsound handle %+v", h)
			}
		})
		again, err := SubtaskStateFromProto(state.ToProto())
		if err != nil || !reflect.DeepEqual(again, state) {
			t.Fatalf("%+v came back as %+v, error %v", state, again, err)
		}
	})
}
