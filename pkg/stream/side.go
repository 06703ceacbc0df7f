package stream

import (
	"fmt"
	"reflect"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// Tag names a side output of a Process or Connect, for records of type T.
// Program and function share it as a variable:
//
//	var late = stream.NewTag[Flight]("late")
type Tag[T any] struct {
	name  string
	codec codec.Codec[T]
}

// NewTag makes a tag. Names are unique within an operator.
func NewTag[T any](name string) Tag[T] { return Tag[T]{name: name} }

// WithCodec encodes the side output's records with c.
func (t Tag[T]) WithCodec(c codec.Codec[T]) Tag[T] {
	t.codec = c
	return t
}

// SideContext is what a function gives to Tag.Collector: its *Context.
type SideContext interface {
	side(tag string) any
}

// Collector is where a function emits the side output's records. The function
// asks for it in its Open and keeps it. Records of a side output that the
// program does not consume are dropped.
func (t Tag[T]) Collector(ctx SideContext) (Collector[T], error) {
	switch c := ctx.side(t.name).(type) {
	case nil:
		return operator.Discard[T](), nil
	case Collector[T]:
		return c, nil
	default:
		return nil, fmt.Errorf("side output %q is consumed with another record type than %s: use one tag for both", t.name, reflect.TypeFor[T]())
	}
}

// SideOutput is the stream of what the operator behind a stream emits to a tag.
func SideOutput[U, T any](of Stream[T], tag Tag[U]) Stream[U] {
	e := of.env
	if e == nil {
		return Stream[U]{}
	}
	none := Stream[U]{env: e}
	if len(of.outlets) != 1 || of.outlets[0].tag != "" ||
		of.outlets[0].node.Kind != graph.ProcessOperator && of.outlets[0].node.Kind != graph.ConnectOperator {
		e.failAt(fmt.Sprintf("side output %q", tag.name), "only the result of stream.Process and stream.Connect has side outputs")
		return none
	}
	if tag.name == "" {
		e.failAt("side output", "its tag has no name: make it with stream.NewTag")
		return none
	}
	n := of.outlets[0].node
	if had, ok := n.outputs[tag.name]; ok {
		if _, same := had.discard.(Collector[U]); !same {
			e.failAt(fmt.Sprintf("side output %q", tag.name), fmt.Sprintf("%s has a side output of that name with another record type", n.describe()))
			return none
		}
	} else {
		n.tags = append(n.tags, tag.name)
	}
	c := tag.codec
	if c == nil {
		c = outputCodec[U](e, n, &settings{}, nil)
	}
	return output(e, n, tag.name, c)
}

// sideOutputs are the collectors of the side outputs that are consumed.
func (n *node) sideOutputs(out func(tag string) any) map[string]any {
	sides := make(map[string]any, len(n.tags))
	for _, tag := range n.tags {
		sides[tag] = out(tag)
	}
	return sides
}
