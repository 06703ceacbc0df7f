package exchange

import (
	"sync"
	"testing"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/transport"
)

// BenchmarkStream sends full frames from one executor to another over TCP,
// against credit that the consumer gives back in quarters.
func BenchmarkStream(b *testing.B) {
	g, err := graph.Expand(graph.JobGraph{
		Name: "bench",
		Operators: []graph.Operator{
			{UID: "source", Kind: graph.SourceOperator, OutputType: "string"},
			{UID: "sink", Kind: graph.SinkOperator},
		},
		Edges: []graph.Edge{{From: "source", To: "sink", Partitioner: graph.Rebalance, Type: "string"}},
	}, 1)
	if err != nil {
		b.Fatal(err)
	}
	plan := Plan{Graph: &g, CreditBytes: 256 << 10, Placements: []coordinator.Placement{{Subtask: source(0)}, {Subtask: sink(0), Peer: 1}}}
	exchanges := make([]*Exchange, 2)
	for i := range exchanges {
		exchanges[i] = New(job, attempt, transport.TCP{})
		l, err := transport.TCP{}.Listen("127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		exchanges[i].Serve(l)
		plan.Peers = append(plan.Peers, coordinator.Peer{DataAddress: l.Addr().String()})
	}
	producer := &creditInbox{available: make(chan int64, 64)}
	consumer := &countingInbox{want: b.N, done: make(chan struct{})}
	for i, inbox := range []Inbox{producer, consumer} {
		plan.Self = i
		if err := exchanges[i].Deploy(plan); err != nil {
			b.Fatal(err)
		}
		if i == 1 {
			consumer.endpoint = exchanges[1].Endpoint(sink(0))
		}
		id := []ids.SubtaskID{source(0), sink(0)}[i]
		if err := exchanges[i].Start(map[ids.SubtaskID]Inbox{id: inbox}); err != nil {
			b.Fatal(err)
		}
	}
	out := exchanges[0].Endpoint(source(0))
	consumer.endpoint.Grant(0, plan.CreditBytes)
	b.SetBytes(operator.CutBytes)
	b.ReportAllocs()
	b.ResetTimer()
	var credit int64
	for range b.N {
		for credit <= 0 {
			credit += <-producer.available
		}
		data, owner := NewBuffer()
		out.Send(subtask.Output{}, element.Frame{Kind: element.Records, Count: 1, Data: data[:operator.CutBytes], Owner: owner})
		credit -= operator.CutBytes
	}
	<-consumer.done
	b.StopTimer()
	var group sync.WaitGroup
	for _, x := range exchanges {
		group.Go(func() {
			if err := x.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
}

// creditInbox is the producer's: it takes credit.
type creditInbox struct{ available chan int64 }

// Receive implements Inbox.
func (c *creditInbox) Receive(int, element.Frame) {}

// AddCredit implements Inbox.
func (c *creditInbox) AddCredit(_ subtask.Output, bytes int64) { c.available <- bytes }

// Fail implements Inbox.
func (c *creditInbox) Fail(f coordinator.Failure) { panic(f.Message) }

// countingInbox is the consumer's: it frees what it gets and gives credit back.
type countingInbox struct {
	endpoint *Endpoint
	consumed int64
	seen     int
	want     int
	done     chan struct{}
}

// Receive implements Inbox.
func (c *countingInbox) Receive(in int, f element.Frame) {
	c.consumed += int64(len(f.Data))
	f.Free()
	if c.consumed > 64<<10 {
		c.endpoint.Grant(in, c.consumed)
		c.consumed = 0
	}
	if c.seen++; c.seen == c.want {
		close(c.done)
	}
}

// AddCredit implements Inbox.
func (c *countingInbox) AddCredit(subtask.Output, int64) {}

// Fail implements Inbox.
func (c *countingInbox) Fail(f coordinator.Failure) { panic(f.Message) }
