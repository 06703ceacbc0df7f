package stream

import (
	"fmt"
	"reflect"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// ProcessFunction handles the records of one subtask of a keyed stream, with
// state per key. All its methods run on one goroutine. It may also be a
// TimerFunction, a Finisher and a Closer.
type ProcessFunction[K comparable, T, O any] interface {
	// Open registers the function's states, before anything else, and does
	// nothing more: it is also called once where the job's graph is built, so
	// that a restore can be compared before anything starts. A Starter acquires
	// other resources.
	Open(ctx *Context[K]) error
	// Process handles one record and emits any number of them. States refer to
	// the record's key.
	Process(ctx *Context[K], v T, out Collector[O]) error
}

// Finisher is a function that has something to emit when its input has ended.
// Only bounded inputs end.
type Finisher[O any] interface {
	// Finish is called once, after the last record.
	Finish(out Collector[O]) error
}

// Closer is a function that has something to release.
type Closer interface {
	// Close is called once, after Open, whether the subtask succeeded or not.
	Close() error
}

// Process runs a function with state per key. newFunction is called once for
// each subtask; what it returns is used by that subtask alone.
func Process[K comparable, T, O any, F ProcessFunction[K, T, O]](in KeyedStream[K, T], uid string, newFunction func() F, options ...Option) Stream[O] {
	env := in.stream.env
	if env == nil {
		return Stream[O]{}
	}
	n, s := env.add(graph.ProcessOperator, uid, true, options)
	if newFunction == nil {
		env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	checkOptionalMethods[F, O](env, n, onTimer[K, O]())
	connectKeyed(in, n, 0)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		p := &processOperator[K, T, O]{key: in.key, fn: newFunction(), out: mainOutput[O](out)}
		p.ctx.sides = n.sideOutputs(out)
		return operator.Instance{Operator: p, Inputs: []any{Collector[T](p)}, Timed: p}, nil
	}
	return output(env, n, "", outputCodec[O](env, n, s, nil))
}

// optionalMethod is a method that is called if a function has it.
type optionalMethod struct {
	method string
	in     reflect.Type
}

// onTimer is the optional method of functions with timers.
func onTimer[K comparable, O any]() optionalMethod {
	return optionalMethod{"OnTimer", reflect.TypeFor[TimerFunction[K, O]]()}
}

// checkOptionalMethods refuses a method that would never be called because
// its signature is not quite the optional interface's.
func checkOptionalMethods[F, O any](e *Env, n *node, more ...optionalMethod) {
	t := reflect.TypeFor[F]()
	for _, want := range append(more, optionalMethod{"Finish", reflect.TypeFor[Finisher[O]]()}, optionalMethod{"Close", reflect.TypeFor[Closer]()}) {
		if _, has := t.MethodByName(want.method); has && !t.Implements(want.in) {
			e.fail(fmt.Errorf("%s: method %s of %s would never be called: declare it as %s%s",
				n.describe(), want.method, t, want.method, want.in.Method(0).Type.String()[len("func"):]))
		}
	}
}

type processOperator[K comparable, T, O any] struct {
	keyedOperator[K]
	key    func(T) K
	fn     ProcessFunction[K, T, O]
	out    Collector[O]
	opened bool
}

// Open implements operator.Operator.
func (p *processOperator[K, T, O]) Open(ctx *operator.Context) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	if err := useTimers(&p.keyedOperator, p.fn, p.out); err != nil {
		return err
	}
	if err := p.fn.Open(&p.ctx); err != nil {
		return p.fail(err)
	}
	p.opened = true
	p.start = func() error { return start(p.fn, &p.ctx) }
	return nil
}

// Prefetch implements operator.Prefetcher.
func (p *processOperator[K, T, O]) Prefetch(next []T) { prefetch(&p.keyedOperator, p.key, next) }

// Collect implements operator.Collector.
func (p *processOperator[K, T, O]) Collect(v T) error {
	if err := p.ctx.keyed.SetCurrentKey(p.key(v)); err != nil {
		return p.fail(err)
	}
	return p.fail(p.fn.Process(&p.ctx, v, p.out))
}

// Finish implements operator.Operator.
func (p *processOperator[K, T, O]) Finish() error {
	p.ctx.timers.open = false
	return p.fail(finish(p.fn, p.out))
}

// Close implements operator.Operator.
func (p *processOperator[K, T, O]) Close() error {
	return closeFunction(p.fn, p.opened, &p.keyedOperator)
}

func finish[O any](fn any, out Collector[O]) error {
	if f, ok := fn.(Finisher[O]); ok {
		return f.Finish(out)
	}
	return nil
}

// closeFunction closes the user's function, then the state below it.
func closeFunction[K comparable](fn any, opened bool, o *keyedOperator[K]) error {
	var first error
	if c, ok := fn.(Closer); ok && opened {
		first = o.fail(c.Close())
	}
	if err := o.closeState(); first == nil {
		first = err
	}
	return first
}
