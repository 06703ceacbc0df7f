package stream

import (
	"fmt"
	"reflect"
	"time"

	"github.com/weirstream/weir/pkg/codec"
)

// Option changes one operator.
type Option func(*settings)

type settings struct {
	uid              *string
	parallelism      *int
	chainingDisabled bool
	codec            any // codec.Codec of the output's record type
	codecType        reflect.Type
	outOfOrderness   *time.Duration
	idleness         *time.Duration
}

// WithParallelism runs the operator in n subtasks, whatever the job's default.
func WithParallelism(n int) Option {
	return func(s *settings) { s.parallelism = &n }
}

// WithUID names an operator without state, for display. Operators with state
// take their UID as an argument.
func WithUID(uid string) Option {
	return func(s *settings) { s.uid = &uid }
}

// DisableChaining keeps the operator out of the vertex of the one in front of
// it: records pass between them encoded, and each has its own goroutine.
func DisableChaining() Option {
	return func(s *settings) { s.chainingDisabled = true }
}

// WithCodec encodes the operator's output records with c instead of the codec
// that codec.For derives. For Reduce, whose state is of the same type, it
// encodes the state too.
func WithCodec[T any](c codec.Codec[T]) Option {
	return func(s *settings) { s.codec, s.codecType = c, reflect.TypeFor[T]() }
}

// outputCodec is the codec of an operator's output records: the given one,
// else that of the input where the operator passes the same records on, else
// a derived one.
func outputCodec[T any](e *Env, n *node, s *settings, inherited codec.Codec[T]) codec.Codec[T] {
	if s.codec != nil {
		c, ok := s.codec.(codec.Codec[T])
		if !ok {
			e.fail(fmt.Errorf("%s: WithCodec is for %s, but the operator's output is %s", n.describe(), s.codecType, reflect.TypeFor[T]()))
			return nil
		}
		return c
	}
	if inherited != nil {
		return inherited
	}
	c, err := codec.For[T]()
	if err != nil {
		e.fail(fmt.Errorf("%s: %w; change the type, or give a codec of your own by stream.WithCodec", n.describe(), err))
		return nil
	}
	return c
}

// typeOf describes the records that c encodes, as it goes into the graph.
func typeOf[T any](c codec.Codec[T]) string { return c.Name() + ":" + c.Schema() }
