package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// From reads a source. The UID stays the same between versions of the
// program: the positions in the source are found by it.
func From[T any](env *Env, uid string, src operator.Source[T], options ...Option) Stream[T] {
	n, s := env.add(graph.SourceOperator, uid, true, options)
	if src == nil {
		env.failAt("source "+uid, "the source is nil")
		return Stream[T]{env: env}
	}
	env.takeConnector(n, src)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		return operator.NewSource(src, mainOutput[T](out)), nil
	}
	return output(env, n, "", outputCodec[T](env, n, s, nil))
}

// connector is what sources and sinks have in common.
type connector interface {
	Describe() operator.Description
}

// takeConnector puts what a connector says about itself into the graph.
func (e *Env) takeConnector(n *node, c connector) {
	if v, ok := c.(operator.Validator); ok {
		if err := v.Validate(); err != nil {
			e.fail(fmt.Errorf("%s: %w", n.describe(), err))
		}
	}
	d := c.Describe()
	n.Bounded = d.Bounded
	for k, v := range d.Options {
		n.Options = append(n.Options, graph.Option{Key: k, Value: v})
	}
	slices.SortFunc(n.Options, func(a, b graph.Option) int { return strings.Compare(a.Key, b.Key) })
}
