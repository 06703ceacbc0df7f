package transport

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// countingOwner counts how often a frame's memory was given back.
type countingOwner struct{ freed int }

func (o *countingOwner) Free() { o.freed++ }

// generated is the same frame for the generated code.
func generated(f Frame) *pb.Frame {
	m := &pb.Frame{
		Channel: f.Channel, Kind: uint32(f.Kind), Count: uint32(f.Count), Data: f.Data,
		Checkpoint: uint64(f.Barrier.Checkpoint), SavepointDir: f.Barrier.SavepointDir, Base: uint64(f.Barrier.Base),
		Watermark: f.Watermark, Idle: f.Idle,
		Alignment: uint32(f.Barrier.Alignment), AlignedTimeoutMs: uint64(f.Barrier.AlignedTimeout),
	}
	if f.Barrier.Savepoint {
		m.BarrierFlags |= 1
	}
	if f.Barrier.Stop {
		m.BarrierFlags |= 2
	}
	if f.Barrier.Drain {
		m.BarrierFlags |= 4
	}
	return m
}

func drawFrame(t *rapid.T) Frame {
	f := Frame{Channel: rapid.Uint32().Draw(t, "channel")}
	f.Kind = element.Kind(rapid.IntRange(int(element.Records), int(element.EndOfPartition)).Draw(t, "kind"))
	f.Count = rapid.IntRange(0, math.MaxInt32).Draw(t, "count")
	if size := rapid.IntRange(0, 50_000).Draw(t, "size"); size > 0 {
		f.Data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "content")}, size)
	}
	f.Barrier = element.Barrier{
		Checkpoint: ids.CheckpointID(rapid.Uint64().Draw(t, "checkpoint")),
		Savepoint:  rapid.Bool().Draw(t, "savepoint"), Stop: rapid.Bool().Draw(t, "stop"), Drain: rapid.Bool().Draw(t, "drain"),
		Alignment:      element.Alignment(rapid.IntRange(int(element.Aligned), int(element.Unaligned)).Draw(t, "alignment")),
		AlignedTimeout: rapid.Int64Min(0).Draw(t, "timeout"),
		SavepointDir:   rapid.String().Draw(t, "dir"), Base: ids.CheckpointID(rapid.Uint64().Draw(t, "base")),
	}
	f.Watermark = rapid.Int64().Draw(t, "watermark")
	f.Idle = rapid.Bool().Draw(t, "idle")
	return f
}

func TestFramesReadTheSameByHandAndGenerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFrame(t)
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(generated(f))
		if err != nil {
			t.Fatal(err)
		}

		owner := &countingOwner{}
		sent := f
		sent.Owner = owner
		out, err := frameCodec{}.Marshal(&sent)
		if err != nil {
			t.Fatal(err)
		}
		have := out.Materialize()
		out.Free()
		if !bytes.Equal(have, want) {
			t.Fatalf("frame is written as %x, generated code writes %x", have, want)
		}
		if owner.freed != 1 {
			t.Fatalf("memory of the frame was given back %d times", owner.freed)
		}

		// In one piece and in several, as HTTP/2 delivers long messages.
		cut := rapid.IntRange(0, len(want)).Draw(t, "cut")
		for _, in := range []mem.BufferSlice{
			{mem.SliceBuffer(want)},
			{mem.SliceBuffer(want[:cut]), mem.SliceBuffer(want[cut:])},
		} {
			var read Frame
			if err := (frameCodec{}).Unmarshal(in, &read); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(generated(read), generated(f)) {
				t.Fatalf("read %v, want %v", read, f)
			}
			read.Free()
		}
	})
}

func TestOtherMessagesAreProtobuf(t *testing.T) {
	m := &pb.SubscribeMessage{Credits: []*pb.Credit{{Channel: 3, Bytes: 1 << 20}}}
	out, err := frameCodec{}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Free()
	var back pb.SubscribeMessage
	if err := encoding.GetCodecV2("proto").Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(m, &back) {
		t.Errorf("read %v, want %v", &back, m)
	}
}

func TestFieldsOfALaterVersionAreSkipped(t *testing.T) {
	b := appendHeader(nil, &Frame{Channel: 7, Frame: element.Frame{Kind: element.EndOfData}})
	b = append(b, 0x7a, 2, 'h', 'i') // field 15, bytes
	var f Frame
	if err := (frameCodec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &f); err != nil {
		t.Fatal(err)
	}
	if f.Channel != 7 || f.Kind != element.EndOfData {
		t.Errorf("read %v", f)
	}
}

// FuzzDecodeFrame: whatever arrives is refused or understood as the generated
// code understands it.
func FuzzDecodeFrame(f *testing.F) {
	for _, frame := range []Frame{
		{Channel: 1, Frame: element.Frame{Kind: element.Records, Count: 2, Data: []byte("records")}},
		{Frame: element.BarrierFrame(element.Barrier{Checkpoint: 9, Savepoint: true, SavepointDir: "s3://b/d", Base: 7})},
		{Frame: element.Frame{Kind: element.WatermarkKind, Watermark: -1}},
	} {
		seed, err := proto.Marshal(generated(frame))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var read Frame
		err := frameCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &read)
		var want pb.Frame
		generatedErr := proto.Unmarshal(b, &want)
		if err != nil {
			return
		}
		defer read.Free()
		if generatedErr != nil {
			t.Fatalf("read %v, which the generated code refuses: %v", read, generatedErr)
		}
		want.BarrierFlags &= flagSavepoint | flagStop
		have := generated(read)
		if want.Data == nil {
			have.Data = nil
		}
		if len(want.ProtoReflect().GetUnknown()) == 0 && !proto.Equal(have, &want) {
			t.Fatalf("read %v, generated code reads %v", have, &want)
		}
	})
}
