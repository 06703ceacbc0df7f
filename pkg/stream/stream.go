package stream

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
)

// Stream is the description of a stream of records of type T. It is a value
// that may be used as the input of any number of operators: each gets every record.
type Stream[T any] struct {
	env *Env
	// outlets are the outputs that the stream consists of, several after a Union.
	outlets []outlet[T]
}

// outlet is one output of an operator, and how its records are to be spread.
type outlet[T any] struct {
	node        *node
	tag         string
	codec       codec.Codec[T]
	partitioner graph.Partitioner
	// byKey makes the output of graph.Hash, of keys with the schema keyType.
	byKey   func(c codec.Codec[T], w *operator.Writer) Collector[T]
	groups  func(c codec.Codec[T], maxParallelism int) operator.Grouper
	keyType string
}

// KeyedStream is a stream whose records go to the subtask that owns their key.
type KeyedStream[K comparable, T any] struct {
	stream   Stream[T]
	key      func(T) K
	encoding *keygroup.Encoding[K]
}

// Stream keeps the records at the subtasks that own their keys, for operators
// without keyed state: a sink that writes each key's records in one subtask,
// in order.
func (k KeyedStream[K, T]) Stream() Stream[T] {
	s := k.stream.partitioned(graph.Hash)
	if k.encoding == nil {
		return s // the mistake is kept already
	}
	for i := range s.outlets {
		s.outlets[i].keyType = k.encoding.Schema()
		s.outlets[i].byKey = func(c codec.Codec[T], w *operator.Writer) Collector[T] {
			return operator.NewHashOutput(c, k.key, k.encoding, w)
		}
		s.outlets[i].groups = func(c codec.Codec[T], maxParallelism int) operator.Grouper {
			return operator.NewGrouper(c, k.key, k.encoding, maxParallelism)
		}
	}
	return s
}

// Collector takes the records that an operator emits.
type Collector[T any] = operator.Collector[T]

// Rebalance deals the records out to the subtasks of the next operator in turn.
func (s Stream[T]) Rebalance() Stream[T] { return s.partitioned(graph.Rebalance) }

// Broadcast sends every record to every subtask of the next operator.
func (s Stream[T]) Broadcast() Stream[T] { return s.partitioned(graph.Broadcast) }

// Forward keeps the records of a subtask on the subtask of the next operator
// with the same number, which must have the same parallelism. Without it that
// is what happens where the declared parallelism of both is the same, and
// otherwise records are rebalanced.
func (s Stream[T]) Forward() Stream[T] { return s.partitioned(graph.Forward) }

func (s Stream[T]) partitioned(p graph.Partitioner) Stream[T] {
	outlets := make([]outlet[T], len(s.outlets))
	for i, o := range s.outlets {
		o.partitioner = p
		outlets[i] = o
	}
	return Stream[T]{env: s.env, outlets: outlets}
}

// Union is all records of several streams of one type, in no order between them.
func Union[T any](first Stream[T], more ...Stream[T]) Stream[T] {
	u := Stream[T]{env: first.env, outlets: append([]outlet[T](nil), first.outlets...)}
	for i, s := range more {
		switch {
		case u.env == nil:
			u.env = s.env
			u.env.failAt("union", "its first stream was not made by this package: start with stream.From")
		case s.env != u.env:
			u.env.failAt("union", fmt.Sprintf("stream %d belongs to another job, or was not made by this package", i+2))
			return u
		}
		u.outlets = append(u.outlets, s.outlets...)
	}
	return u
}

// KeyBy gives every record a key. Records with the same key meet in the same
// subtask, and state is kept per key. The function must give the same key for
// the same record every time. Keys are integers, bool, strings, byte arrays
// and structs of them.
func KeyBy[K comparable, T any](in Stream[T], key func(T) K) KeyedStream[K, T] {
	keyed := KeyedStream[K, T]{stream: in.partitioned(graph.Hash), key: key}
	if in.env == nil {
		return keyed
	}
	if key == nil {
		in.env.failAt("keyBy", "the key function is nil")
	}
	for _, o := range in.outlets {
		if o.partitioner != "" {
			in.env.failAt("keyBy", fmt.Sprintf("its input is told to %s its records, but a key decides where a record goes: leave one of them out", o.partitioner))
		}
	}
	var err error
	if keyed.encoding, err = keygroup.NewEncoding[K](); err != nil {
		in.env.failAt("keyBy", err.Error())
	}
	return keyed
}

// failAt is fail for what is not an operator. A nil Env, of a stream that this
// package did not make, has nowhere to keep a mistake: Build finds the gap
// that the stream leaves.
func (e *Env) failAt(what, message string) {
	if e != nil {
		e.fail(fmt.Errorf("the %s at %s: %s", what, callSite(), message))
	}
}

// inherited is the codec of a stream's records for an operator that passes
// them on; nil if there is none.
func (s Stream[T]) inherited() codec.Codec[T] {
	if len(s.outlets) == 0 {
		return nil
	}
	return s.outlets[0].codec
}

// output declares an output of n, and is the stream of its records.
func output[T any](e *Env, n *node, tag string, c codec.Codec[T]) Stream[T] {
	n.outputs[tag] = outputCode{
		discard: operator.Discard[T](),
		tee: func(collectors []any) any {
			typed := make([]Collector[T], len(collectors))
			for i, c := range collectors {
				typed[i] = c.(Collector[T])
			}
			return operator.Tee(typed)
		},
	}
	if tag == "" && c != nil {
		n.OutputType = typeOf(c)
	}
	return Stream[T]{env: e, outlets: []outlet[T]{{node: n, tag: tag, codec: c}}}
}

// connect leads a stream into an input gate of n.
func connect[T any](in Stream[T], n *node, input int) {
	for _, o := range in.outlets {
		if o.partitioner == graph.Hash {
			n.KeyType = o.keyType
		}
	}
	groups := func(o outlet[T]) func(codec.Codec[T], int) operator.Grouper { return o.groups }
	connectBy(in, n, input, groups, func(p graph.Partitioner, o outlet[T], w *operator.Writer) Collector[T] {
		switch p {
		case graph.Rebalance:
			return operator.NewRebalanceOutput(o.codec, w)
		case graph.Broadcast:
			return operator.NewBroadcastOutput(o.codec, w)
		case graph.Hash:
			return o.byKey(o.codec, w)
		case graph.Forward:
		}
		return operator.NewForwardOutput(o.codec, w)
	})
}

// connectKeyed leads a keyed stream into an input gate of n.
func connectKeyed[K comparable, T any](in KeyedStream[K, T], n *node, input int) {
	if in.encoding != nil {
		n.KeyType = in.encoding.Schema()
	}
	groups := func(outlet[T]) func(codec.Codec[T], int) operator.Grouper {
		return func(c codec.Codec[T], maxParallelism int) operator.Grouper {
			return operator.NewGrouper(c, in.key, in.encoding, maxParallelism)
		}
	}
	connectBy(in.stream, n, input, groups, func(_ graph.Partitioner, o outlet[T], w *operator.Writer) Collector[T] {
		return operator.NewHashOutput(o.codec, in.key, in.encoding, w)
	})
}

// connectBy leads a stream into an input gate of n. groups tells whose the
// records of an outlet are, by their codec on the edge; nil if no key decides that.
func connectBy[T any](in Stream[T], n *node, input int, groups func(outlet[T]) func(codec.Codec[T], int) operator.Grouper,
	newOutput func(graph.Partitioner, outlet[T], *operator.Writer) Collector[T]) {
	for _, o := range in.outlets {
		x := &edge{from: o.node, to: n, tag: o.tag, input: input, partitioner: o.partitioner}
		if o.codec != nil { // else the mistake is kept already
			x.typ = typeOf(o.codec)
		}
		x.newInput = func(collector any) operator.Input {
			return operator.NewInput(o.codec, collector.(Collector[T]))
		}
		x.newOutput = func(p graph.Partitioner, w *operator.Writer) any {
			return newOutput(p, o, w)
		}
		grouped := groups(o)
		if grouped != nil {
			x.newGrouper = func(maxParallelism int) operator.Grouper { return grouped(o.codec, maxParallelism) }
		}
		if o.node.stamped && o.codec != nil {
			n.stamped = true
			x.typ = typeOf(operator.Stamped(o.codec, nil))
			x.newStampedInput = func(collector any, t *operator.Time) operator.Input {
				return operator.NewStampedInput(o.codec, collector.(Collector[T]), t)
			}
			x.newOutput = func(p graph.Partitioner, w *operator.Writer) any {
				to := o
				to.codec = operator.Stamped(o.codec, w.Time)
				return newOutput(p, to, w)
			}
			if grouped != nil {
				x.newGrouper = func(maxParallelism int) operator.Grouper {
					return grouped(operator.Stamped(o.codec, &operator.Time{}), maxParallelism)
				}
			}
		}
		in.env.edges = append(in.env.edges, x)
	}
}

// errNoFunction is the mistake of passing nil for a user function.
var errNoFunction = errors.New("the function is nil")

// mainOutput is the collector of an operator's main output.
func mainOutput[T any](out func(tag string) any) Collector[T] { return out("").(Collector[T]) }
