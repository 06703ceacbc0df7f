package transport

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/pb"
)

// sessionMessage is what the four kinds of session messages have in common.
type sessionMessage interface {
	proto.Message
	GetChunk() *pb.Chunk
}

// chunkMessage is the session message that holds a piece of another.
func chunkMessage[M any](c *pb.Chunk) *M {
	var m any
	switch any((*M)(nil)).(type) {
	case *pb.TaskManagerReport:
		m = &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Chunk{Chunk: c}}
	case *pb.TaskManagerCommand:
		m = &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Chunk{Chunk: c}}
	case *pb.ExecutorReport:
		m = &pb.ExecutorReport{Kind: &pb.ExecutorReport_Chunk{Chunk: c}}
	case *pb.ExecutorCommand:
		m = &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Chunk{Chunk: c}}
	}
	out, ok := m.(*M)
	invariant.Check(ok, "chunks", "%T is no message of a session", out)
	return out
}

// eachChunk encodes a message, once, and hands it on in pieces.
func eachChunk(m proto.Message, send func(*pb.Chunk) error) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %T: %w", m, err)
	}
	c := &pb.Chunk{Total: uint64(len(data))}
	for len(data) > 0 {
		n := min(len(data), chunkBytes)
		c.Data, data = data[:n], data[n:]
		if err := send(c); err != nil {
			return err
		}
		c = &pb.Chunk{}
	}
	return nil
}

// assembler puts the pieces of messages together, one message at a time. It
// holds no more than what has come of it, and room for as much again: what a
// peer announces takes no memory.
type assembler struct {
	data  []byte
	total int // 0: no message has begun
}

// pending says how much of a message that is not complete has come.
func (a *assembler) pending() (have, total int) { return len(a.data), a.total }

// add takes a piece. With the last of a message it returns the whole, which it
// keeps no reference to. Errors are ErrTooLarge and ErrInvalid, after which
// the assembler is of no use.
func (a *assembler) add(c *pb.Chunk) ([]byte, error) {
	piece := c.GetData()
	switch {
	case a.total == 0 && c.GetTotal() > SessionMessageBytesMax:
		return nil, Errorf(ErrTooLarge, "the peer sends a message of %d bytes: at most %d are taken", c.GetTotal(), SessionMessageBytesMax)
	case a.total == 0 && c.GetTotal() == 0:
		return nil, Errorf(ErrInvalid, "a piece of a message comes without the first")
	case a.total != 0 && c.GetTotal() != 0:
		return nil, Errorf(ErrInvalid, "a message begins after %d of the %d bytes of the one before it", len(a.data), a.total)
	case len(piece) == 0:
		return nil, Errorf(ErrInvalid, "a piece of a message is empty")
	}
	if a.total == 0 {
		a.total = int(c.GetTotal())
	}
	if len(piece) > a.total-len(a.data) {
		return nil, Errorf(ErrInvalid, "a piece of %d bytes comes when %d of the %d bytes of a message are there", len(piece), len(a.data), a.total)
	}
	if need := len(a.data) + len(piece); need > cap(a.data) {
		larger := make([]byte, len(a.data), min(a.total, max(need, chunkThresholdBytes, 2*cap(a.data))))
		copy(larger, a.data)
		a.data = larger
	}
	a.data = append(a.data, piece...)
	if len(a.data) < a.total {
		return nil, nil
	}
	message := a.data
	*a = assembler{}
	return message, nil
}
