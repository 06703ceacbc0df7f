package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/stream"
	"github.com/weirstream/weir/pkg/transport"
)

// payload is a record of 100 bytes.
type payload struct{ Data [payloadBytes]byte }

const payloadBytes = 100

// payloads is a source of numbered payloads. It fills them in where they are
// wanted, so that the source costs next to nothing.
type payloads struct{ n uint64 }

// ListSplits implements operator.Source.
func (p payloads) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	return [][]byte{{0}}, true, nil
}

// OpenReader implements operator.Source.
func (p payloads) OpenReader(_ context.Context, _ operator.SourceContext, _, position []byte) (operator.Reader[payload], error) {
	r := &payloadReader{n: p.n}
	if position != nil {
		r.next = binary.LittleEndian.Uint64(position)
	}
	return r, nil
}

// Describe implements operator.Source.
func (p payloads) Describe() operator.Description {
	return operator.Description{Options: map[string]string{"records": strconv.FormatUint(p.n, 10)}, Bounded: true}
}

// payloadReader is its own batch: the runtime never fetches while it reads one.
type payloadReader struct{ next, end, n uint64 }

// payloadsPerFetch makes a fetch rare.
const payloadsPerFetch = 1 << 16

// Fetch implements operator.Reader.
func (r *payloadReader) Fetch(context.Context) (operator.Batch[payload], error) {
	if r.next == r.n {
		return nil, io.EOF
	}
	r.end = min(r.next+payloadsPerFetch, r.n)
	return r, nil
}

// Next implements operator.Batch.
func (r *payloadReader) Next(v *payload) (bool, error) {
	if r.next == r.end {
		return false, nil
	}
	binary.LittleEndian.PutUint64(v.Data[:], r.next)
	r.next++
	return true, nil
}

// Position implements operator.Batch.
func (r *payloadReader) Position() []byte { return binary.LittleEndian.AppendUint64(nil, r.next) }

// Close implements operator.Reader.
func (r *payloadReader) Close() error { return nil }

// text is a record of about 100 bytes with strings in it.
type text struct {
	Number uint64
	Fill   string
}

// keyOfSubtask is a key whose group belongs to subtask index of two, so that
// records go to another executor when every TaskManager has one slot.
func keyOfSubtask(index int) uint64 {
	enc, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		panic(err) // uint64 is a key type
	}
	for k := uint64(0); ; k++ {
		g := keygroup.OfHash(enc.Hash(&k), keygroup.DefaultMaxParallelism)
		if keygroup.OwnerOf(g, 2, keygroup.DefaultMaxParallelism) == index {
			return k
		}
	}
}

// exchange sends 100-byte records from subtask 0 on one TaskManager to subtask
// 1 on the other.
func exchange(env *stream.Env) error {
	far := keyOfSubtask(1)
	numbers := stream.From(env, "numbers", payloads{n: *records}, stream.WithParallelism(1))
	there := stream.KeyBy(numbers, func(payload) uint64 { return far }).Stream()
	stream.To(there, "out", meterSink[payload]{}, stream.WithParallelism(2))
	return nil
}

// exchangeString does the same with records that have a string in them.
func exchangeString(env *stream.Env) error {
	far := keyOfSubtask(1)
	fill := string(slices.Repeat([]byte("x"), 90))
	numbers := stream.From(env, "numbers", datagen.Generate(*records, func(i uint64) text { return text{Number: i, Fill: fill} },
		datagen.WithSplits(1)), stream.WithParallelism(1))
	there := stream.KeyBy(numbers, func(text) uint64 { return far }).Stream()
	stream.To(there, "out", meterSink[text]{}, stream.WithParallelism(2))
	return nil
}

// meterSink counts what arrives, and reports when the job ends.
type meterSink[T any] struct{}

// OpenWriter implements operator.Sink.
func (meterSink[T]) OpenWriter(*operator.Context) (operator.SinkWriter[T], error) {
	return &meterWriter[T]{meter: meter{warmUp: *records / 5, last: *records}}, nil
}

// Describe implements operator.Sink.
func (meterSink[T]) Describe() operator.Description { return operator.Description{} }

type meterWriter[T any] struct{ meter meter }

// Write implements operator.SinkWriter.
func (w *meterWriter[T]) Write(T) error {
	w.meter.record()
	return nil
}

// Flush implements operator.SinkWriter.
func (w *meterWriter[T]) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (w *meterWriter[T]) Close() error {
	if w.meter.seen < w.meter.last {
		return nil // the subtask that is sent nothing
	}
	return w.meter.report(payloadBytes)
}

// latency sends stamped records to the other TaskManager and back.
func latency(env *stream.Env) error {
	far, near := keyOfSubtask(1), keyOfSubtask(0)
	stamps := stream.From(env, "numbers", datagen.Generate(*records, func(uint64) int64 { return 0 },
		datagen.WithSplits(1), datagen.WithRate(*rate)), stream.WithParallelism(1))
	stamped := stream.Map(stamps, func(int64) (int64, error) { return time.Now().UnixNano(), nil }, stream.WithParallelism(1))
	there := stream.Process(stream.KeyBy(stamped, func(int64) uint64 { return far }), "there",
		func() *receiverOfStamps { return &receiverOfStamps{} }, stream.WithParallelism(2))
	back := stream.Process(stream.KeyBy(there, func(int64) uint64 { return near }), "back",
		func() *stopwatch { return &stopwatch{} }, stream.WithParallelism(2))
	stream.To(back, "out", blackhole.Sink[int64](), stream.WithParallelism(2))
	return nil
}

type receiverOfStamps struct{}

// Open implements stream.ProcessFunction.
func (*receiverOfStamps) Open(*stream.Context[uint64]) error { return nil }

// Process implements stream.ProcessFunction.
func (*receiverOfStamps) Process(_ *stream.Context[uint64], v int64, out stream.Collector[int64]) error {
	return out.Collect(v)
}

// stopwatch collects how long each record took.
type stopwatch struct{ took []int64 }

// Open implements stream.ProcessFunction.
func (s *stopwatch) Open(*stream.Context[uint64]) error {
	s.took = make([]int64, 0, *records)
	return nil
}

// Process implements stream.ProcessFunction.
func (s *stopwatch) Process(_ *stream.Context[uint64], v int64, _ stream.Collector[int64]) error {
	s.took = append(s.took, time.Now().UnixNano()-v)
	return nil
}

// Finish implements stream.Finisher.
func (s *stopwatch) Finish(stream.Collector[int64]) error {
	if len(s.took) == 0 {
		return nil
	}
	warm := s.took[len(s.took)/5:]
	slices.Sort(warm)
	return report("p50_ms=%.3f\np99_ms=%.3f\np999_ms=%.3f",
		float64(warm[len(warm)/2])/1e6, float64(warm[len(warm)*99/100])/1e6, float64(warm[len(warm)*999/1000])/1e6)
}

// rawFrameBytes is the size of the baseline's messages.
const rawFrameBytes = 32 << 10

// rawProducer streams messages of 32 KiB as fast as gRPC takes them, through
// the same server, connection options and windows as an executor's exchange.
type rawProducer struct{}

// Subscribe implements transport.ExchangeHandler.
func (rawProducer) Subscribe(ctx context.Context, _ *pb.Subscription, s transport.ExchangeServerStream) error {
	data := make([]byte, rawFrameBytes)
	binary.LittleEndian.PutUint64(data, 1)
	for ctx.Err() == nil {
		if s.Send(&transport.Frame{Frame: element.Frame{Kind: element.Records, Count: 1, Data: data}}) != nil {
			break // the reader has enough
		}
	}
	return nil
}

func serveRaw() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	listener, err := transport.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := transport.Serve(listener, transport.Handlers{Exchange: rawProducer{}})
	<-ctx.Done()
	return server.Close()
}

func readRaw() error {
	client, err := transport.DialExecutor(*address, transport.DialOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	frames, err := client.Subscribe(ctx, &pb.Subscription{})
	if err != nil {
		cancel()
		return errors.Join(err, client.Close())
	}
	total := *records * payloadBytes
	var seen uint64
	var started time.Time
	for seen < total {
		var f transport.Frame
		if err := frames.Recv(&f); err != nil {
			cancel()
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return errors.Join(err, client.Close())
		}
		if before := seen; before < total/5 && before+uint64(len(f.Data)) >= total/5 {
			started = time.Now()
		}
		seen += uint64(len(f.Data))
		f.Free()
	}
	elapsed := time.Since(started).Seconds()
	cancel()
	return errors.Join(report("bytes_per_second=%.0f", float64(seen-total/5)/elapsed), client.Close())
}
