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
	"syscall"
	"time"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/stream"
	"github.com/weirstream/weir/pkg/transport"
)

// payload is a record of 100 bytes.
type payload struct {
	Number uint64
	Fill   [92]byte
}

const payloadBytes = 100

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
	numbers := stream.From(env, "numbers", datagen.Generate(*records, func(i uint64) payload { return payload{Number: i} },
		datagen.WithSplits(1)), stream.WithParallelism(1))
	byKey := stream.KeyBy(numbers, func(payload) uint64 { return far })
	received := stream.Process(byKey, "received", func() *receiver[payload] {
		return &receiver[payload]{meter: meter{warmUp: *records / 5}}
	}, stream.WithParallelism(2))
	stream.To(received, "out", blackhole.Sink[payload](), stream.WithParallelism(2))
	return nil
}

func exchangeString(env *stream.Env) error {
	far := keyOfSubtask(1)
	fill := string(slices.Repeat([]byte("x"), 90))
	numbers := stream.From(env, "numbers", datagen.Generate(*records, func(i uint64) text { return text{Number: i, Fill: fill} },
		datagen.WithSplits(1)), stream.WithParallelism(1))
	byKey := stream.KeyBy(numbers, func(text) uint64 { return far })
	received := stream.Process(byKey, "received", func() *receiver[text] {
		return &receiver[text]{meter: meter{warmUp: *records / 5}}
	}, stream.WithParallelism(2))
	stream.To(received, "out", blackhole.Sink[text](), stream.WithParallelism(2))
	return nil
}

// receiver counts what arrives. It keeps no state: the exchange is measured.
type receiver[T any] struct{ meter meter }

// Open implements stream.ProcessFunction.
func (r *receiver[T]) Open(*stream.Context[uint64]) error { return nil }

// Process implements stream.ProcessFunction.
func (r *receiver[T]) Process(_ *stream.Context[uint64], v T, out stream.Collector[T]) error {
	r.meter.record()
	return out.Collect(v)
}

// Finish implements stream.Finisher.
func (r *receiver[T]) Finish(stream.Collector[T]) error {
	if r.meter.seen == 0 {
		return nil // the subtask that is sent nothing
	}
	return r.meter.report(payloadBytes)
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
	stream, err := client.Subscribe(ctx, &pb.Subscription{})
	if err != nil {
		cancel()
		return errors.Join(err, client.Close())
	}
	total := *records * payloadBytes
	var seen uint64
	var started time.Time
	for seen < total {
		var f transport.Frame
		if err := stream.Recv(&f); err != nil {
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
