package state_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// wallClock is the clock of the examples. Jobs get the host's.
var wallClock = time.UnixMilli(1_700_000_000_000)

// openContext and begin stand for the runtime: in a job, Open is given its
// context, and state is restored between Open and the first record.
func openContext() *state.Keyed[string] {
	ctx, err := state.NewKeyed[string](state.Options{
		Operator: "example", Range: keygroup.RangeOf(0, 1, 128), MaxParallelism: 128, Backend: memory.New(),
		Now: func() time.Time { return wallClock },
	})
	check(err)
	return ctx
}

func begin(ctx *state.Keyed[string], key string) {
	check(ctx.Backend().Restore(nil))
	check(ctx.SetCurrentKey(key))
}

func check(err error) {
	if err != nil {
		panic(err) // an example has nobody to return it to
	}
}

// firstStats is the type of the state in the first version of a program.
type firstStats struct {
	Flights  int32
	DelaySum int64
	Worst    float32
	Carrier  string
}

// Stats is what the second version has: a field more, one less, one renamed, and one of more bits.
type Stats struct {
	Flights int64
	Minutes int64 `weir:"minutes,alias=DelaySum"`
	Worst   float64
	Best    *int32
}

func ExampleNewValue_migrated() {
	first := openContext()
	old, err := state.NewValue[firstStats](first, "stats")
	check(err)
	begin(first, "ABQ")
	check(old.Set(firstStats{Flights: 3, DelaySum: 45, Worst: 30.5, Carrier: "WN"}))
	stored := snapshotOf(first)

	second := openContext()
	stats, err := state.NewValue[Stats](second, "stats")
	check(err)
	check(second.Backend().Restore(stored))
	check(second.SetCurrentKey("ABQ"))
	v, _, err := stats.Get()
	check(err)
	fmt.Printf("%+v\n", v)
	// Output: {Flights:3 Minutes:45 Worst:30.5 Best:<nil>}
}

// snapshotOf is what a checkpoint would have of a state.
func snapshotOf(ctx *state.Keyed[string]) []statebackend.RestoredPart {
	frozen, err := ctx.Backend().Freeze()
	check(err)
	defer frozen.Release()
	var data bytes.Buffer
	part := statebackend.RestoredPart{Range: keygroup.RangeOf(0, 1, 128)}
	part.Offsets, part.States, err = frozen.WriteSnapshot(&data)
	check(err)
	part.Data = data.Bytes()
	return []statebackend.RestoredPart{part}
}

func ExampleNewList() {
	ctx := openContext()
	recent, err := state.NewList[string](ctx, "recent")
	check(err)
	begin(ctx, "user-1")

	check(recent.Add("login"))
	check(recent.AddAll([]string{"search", "buy"}))
	events, err := recent.Get()
	check(err)
	fmt.Println(events)
	check(recent.Set(events[1:]))
	events, err = recent.Get()
	check(err)
	fmt.Println(events)
	// Output:
	// [login search buy]
	// [search buy]
}

func ExampleNewMap() {
	ctx := openContext()
	visits, err := state.NewMap[string, int64](ctx, "visits-by-page")
	check(err)
	begin(ctx, "user-1")

	for _, page := range []string{"/home", "/cart", "/home", "/about"} {
		n, _, err := visits.Ref(page)
		check(err)
		*n++
	}
	check(visits.Remove("/about"))
	check(visits.Each(func(page string, n int64) error {
		fmt.Println(page, n)
		return nil
	}))
	// Output:
	// /cart 1
	// /home 2
}

func ExampleNewReducing() {
	ctx := openContext()
	longest, err := state.NewReducing(ctx, "longest", func(sofar, v string) (string, error) {
		if len(v) > len(sofar) {
			return v, nil
		}
		return sofar, nil
	})
	check(err)
	begin(ctx, "words")

	for _, word := range []string{"a", "stream", "of", "words"} {
		check(longest.Add(word))
	}
	word, found, err := longest.Get()
	check(err)
	fmt.Println(word, found)
	// Output: stream true
}

// Sum is an accumulator.
type Sum struct{ Total, Count int64 }

// Mean folds numbers into a Sum, and reads their mean of it.
type Mean struct{}

// Start implements state.Aggregator.
func (Mean) Start() Sum { return Sum{} }

// Add implements state.Aggregator.
func (Mean) Add(acc *Sum, v int64) error {
	acc.Total += v
	acc.Count++
	return nil
}

// Result implements state.Aggregator.
func (Mean) Result(acc *Sum) (float64, error) { return float64(acc.Total) / float64(acc.Count), nil }

func ExampleNewAggregating() {
	ctx := openContext()
	delay, err := state.NewAggregating(ctx, "delay", Mean{})
	check(err)
	begin(ctx, "ABQ")

	for _, minutes := range []int64{10, 0, 5} {
		check(delay.Add(minutes))
	}
	mean, found, err := delay.Get()
	check(err)
	fmt.Println(mean, found)
	// Output: 5 true
}

func ExampleWithTTL() {
	ctx := openContext()
	session, err := state.NewValue[string](ctx, "session",
		state.WithTTL(30*time.Minute, state.OnReadAndWrite, state.NotWhileDown))
	check(err)
	begin(ctx, "user-1")

	check(session.Set("cart: 2 items"))
	for _, pause := range []time.Duration{20 * time.Minute, 20 * time.Minute, 30 * time.Minute} {
		wallClock = wallClock.Add(pause)
		v, found, err := session.Get()
		check(err)
		fmt.Printf("%q %t\n", v, found)
	}
	// Output:
	// "cart: 2 items" true
	// "cart: 2 items" true
	// "" false
}

// rescaled stands for the runtime: it gives each subtask what a restore at
// parallelism 2 gives it of the only list.
func rescaled(from *state.Operator, name string, to ...*state.Operator) {
	frozen, err := from.Freeze()
	check(err)
	defer frozen.Release()
	check(frozen.Write(func(stored string, mode snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
		if stored != "list/"+name {
			return nil
		}
		for i, o := range to {
			part := elements
			if mode == snapshot.SplitEvenly {
				part = elements[i*len(elements)/len(to) : (i+1)*len(elements)/len(to)]
			}
			check(o.Restore(map[string][][]byte{stored: part}))
		}
		return nil
	}))
}

func ExampleNewSplitList() {
	var pending [3]*state.OperatorList[string]
	var ctx [3]*state.Operator
	for i := range ctx {
		var err error
		ctx[i] = state.NewOperator("sender", i)
		pending[i], err = state.NewSplitList[string](ctx[i], "pending")
		check(err)
	}
	pending[0].Set([]string{"a", "b", "c", "d"})
	rescaled(ctx[0], "pending", ctx[1], ctx[2])
	fmt.Println(pending[1].Get(), pending[2].Get())
	// Output: [a b] [c d]
}

func ExampleNewUnionList() {
	var seen [3]*state.OperatorList[string]
	var ctx [3]*state.Operator
	for i := range ctx {
		var err error
		ctx[i] = state.NewOperator("sender", i)
		seen[i], err = state.NewUnionList[string](ctx[i], "seen")
		check(err)
	}
	seen[0].Add("a")
	seen[0].Add("b")
	rescaled(ctx[0], "seen", ctx[1], ctx[2])
	fmt.Println(seen[1].Get(), seen[2].Get())
	// Output: [a b] [a b]
}

func ExampleNewBroadcast() {
	ctx := state.NewOperator("match", 0)
	limits, err := state.NewBroadcast[string, int64](ctx, "limits")
	check(err)
	check(ctx.Restore(nil))

	var side state.BroadcastSide // given to ProcessBroadcast by the runtime
	side.Begin()
	check(limits.Set(&side, "ABQ", 15))
	side.End()

	limit, found, err := limits.Get("ABQ") // in Process
	check(err)
	fmt.Println(limit, found)
	fmt.Println(limits.Set(&side, "ABQ", 0))
	// Output:
	// 15 true
	// broadcast state can be changed only while a broadcast record is processed
}
