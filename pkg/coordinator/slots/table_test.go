package slots

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
)

// TestScripts plays the transcripts in testdata. Commands: register tm=… slots=…,
// lose tm=…, request|release job=… attempt=T.N count=… [avoid=…], forget job=….
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var table Table
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(name string) string {
				var s string
				d.MaybeScanArgs(t, name, &s)
				return s
			}
			number := func(name string) int {
				var n int
				d.MaybeScanArgs(t, name, &n)
				return n
			}
			attempt := func() ids.AttemptID {
				a, err := ids.ParseAttemptID(arg("attempt"))
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			avoid := func() (list []ids.TaskManagerID) {
				for _, tm := range strings.Fields(strings.ReplaceAll(arg("avoid"), ",", " ")) {
					list = append(list, ids.TaskManagerID(tm))
				}
				return list
			}
			var notices []Notice
			switch d.Cmd {
			case "register":
				notices = table.Register(ids.TaskManagerID(arg("tm")), number("slots"))
			case "lose":
				notices = table.Lose(ids.TaskManagerID(arg("tm")))
			case "request":
				notices = table.Request(ids.JobID(arg("job")), attempt(), number("count"), avoid()...)
			case "release":
				notices = table.Release(ids.JobID(arg("job")), attempt())
			case "forget":
				notices = table.Forget(ids.JobID(arg("job")))
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			table.Check()
			var b strings.Builder
			for _, n := range notices {
				fmt.Fprintln(&b, n)
			}
			total, free := table.Count()
			fmt.Fprintf(&b, "free %d of %d\n", free, total)
			return b.String()
		})
	})
}

// I7: a lost reply leaks no slot. The job never learns of its grant and asks
// again with its next attempt, 50 times over.
func TestI7LostReplyLeaksNoSlot(t *testing.T) {
	var table Table
	for i := range 3 {
		table.Register(ids.TaskManagerID(fmt.Sprint("tm-", i)), 4)
	}
	for n := range 50 {
		attempt := ids.AttemptID{Token: 1, Number: uint32(n + 1)}
		if got := len(table.Request("job", attempt, 7)); got != 1 {
			t.Fatalf("attempt %d: %d notices", n, got)
		}
		table.Check()
		if total, free := table.Count(); total != 12 || free != 5 {
			t.Fatalf("attempt %d: free %d of %d", n, free, total)
		}
	}
}

// I7, I8: whatever comes in whatever order, a slot has one holder, all-or-nothing
// grants are whole, and what an old attempt says changes nothing.
func TestI7EverySlotHasOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var table Table
		newest := map[ids.JobID]ids.AttemptID{}
		for range 300 {
			jobID := ids.JobID(fmt.Sprint("job-", r.IntN(3)))
			attempt := ids.AttemptID{Token: ids.FencingToken(1 + r.IntN(2)), Number: uint32(r.IntN(6))}
			tm := ids.TaskManagerID(fmt.Sprint("tm-", r.IntN(5)))
			var notices []Notice
			switch r.IntN(5) {
			case 0:
				notices = table.Register(tm, 1+r.IntN(4))
			case 1:
				notices = table.Lose(tm)
			case 2, 3:
				notices = table.Request(jobID, attempt, 1+r.IntN(6))
				if newest[jobID].Less(attempt) {
					newest[jobID] = attempt
				}
			case 4:
				_, before := table.Count()
				notices = table.Release(jobID, attempt)
				if _, after := table.Count(); attempt.Less(newest[jobID]) && (after != before || len(notices) > 0) {
					t.Fatalf("release of old attempt %s changed the table", attempt)
				}
				if _, ok := table.jobs[jobID]; ok && newest[jobID].Less(attempt) {
					newest[jobID] = attempt
				}
			}
			table.Check()
			for _, n := range notices {
				if g, ok := n.(Grant); ok && g.Attempt != newest[g.Job] {
					t.Fatalf("granted to %s, newest is %s", g.Attempt, newest[g.Job])
				}
			}
			for _, j := range table.queue {
				if _, free := table.Count(); j.want <= free {
					t.Fatalf("the request of %s fits but waits", j.id)
				}
			}
		}
	})
}
