package exchange

import (
	"fmt"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/transport"
)

// Endpoint is one subtask's end of all its channels. Its methods are called
// by the task's goroutine and do not block.
type Endpoint struct {
	id          ids.SubtaskID
	inbox       Inbox // of the subtask's own task
	creditBytes int64
	in          []inChannel
	out         [][]outChannel // by edge, as in subtask.Output
}

// inChannel is where the credit of an input channel goes: to a task of this
// executor, or into a stream.
type inChannel struct {
	producer *Endpoint
	out      subtask.Output
	stream   *inStream
}

// outChannel is where the frames of an output channel go.
type outChannel struct {
	consumer *Endpoint
	stream   *outStream
	channel  int // the consumer's number
}

// CreditBytes is the credit that the producer of each input channel gets.
func (e *Endpoint) CreditBytes() int64 { return e.creditBytes }

// Send passes a frame on, and takes its memory over.
func (e *Endpoint) Send(out subtask.Output, f element.Frame) {
	c := &e.out[out.Edge][out.Channel]
	if c.stream == nil {
		c.consumer.inbox.Receive(c.channel, f)
		return
	}
	if len(f.Data) > transport.FrameBytesMax {
		size := len(f.Data)
		f.Free()
		e.inbox.Fail(coordinator.Failure{
			Kind: coordinator.PermanentFailure,
			Message: fmt.Sprintf("subtask %s emitted a batch of %d bytes for subtask %s on another executor: at most %d can be sent; "+
				"make the record smaller", e.id, size, c.stream.consumer, transport.FrameBytesMax),
		})
		return
	}
	c.stream.push(transport.Frame{Channel: uint32(c.channel), Frame: f})
}

// Grant gives the producer of an input channel credit.
func (e *Endpoint) Grant(in int, bytes int64) {
	c := &e.in[in]
	if c.stream == nil {
		c.producer.inbox.AddCredit(c.out, bytes)
		return
	}
	c.stream.grant(in, bytes)
}
