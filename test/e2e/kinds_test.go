//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/flightstruth"
)

// kinds is the input of the program of that name, which has every kind of
// state, and where its output goes.
type kinds struct {
	splits, keys, rounds, rules int
	binary, output              string
}

// newKinds has four splits with ten keys each, and builds the program: before
// the cluster starts, whose time is limited.
func newKinds(t *testing.T, rounds int) *kinds {
	t.Helper()
	return &kinds{splits: 4, keys: 10, rounds: rounds, rules: 140, binary: program(t, "test/programs/kinds"), output: filepath.Join(t.TempDir(), "output")}
}

// records are those of the whole input.
func (k *kinds) records() int { return k.splits * k.keys * k.rounds }

// fast is a rate for the rest of an input: a split still takes far longer than
// the 20 ms to a key's first timer, which the end of the input would drop.
const fast = 8000

// args are the program and its arguments at a rate of records per second.
func (k *kinds) args(rate int, more ...string) []string {
	return append([]string{k.binary, "--", "--output", k.output, "--splits", itoa(k.splits), "--keys", itoa(k.keys),
		"--rounds", itoa(k.rounds), "--rules", itoa(k.rules), "--rate", itoa(rate)}, more...)
}

// kindsLine is a line of the output.
type kindsLine struct {
	Kind     string `json:"kind"`
	Key      int    `json:"key"`
	N        int    `json:"n"`
	Count    int    `json:"count"`
	Sum      int    `json:"sum"`
	Max      int    `json:"max"`
	Mean     int    `json:"mean"`
	Distinct int    `json:"distinct"`
	Subtask  int    `json:"subtask"`
	Name     string `json:"name"`
}

// Of the kinds program's input and operators.
const (
	windowRecords = 4
	ruleNames     = 7
)

// running are the lines that the records of a key give, in order. It keeps no
// state between them but what it looks back at: the key's weights.
func (k *kinds) running(key int) []kindsLine {
	var lines []kindsLine
	var weights []int
	distinct := map[int]bool{}
	for n := range k.rounds {
		w := (n*n*31 + key*17) % 1009
		weights = append(weights, w)
		line := kindsLine{Kind: "running", Key: key, N: n, Count: n + 1, Max: slices.Max(weights)}
		// The list begins again with every eighth record.
		for i, v := range weights[max(0, (n+1)/8*8-1):] {
			line.Sum += (i + 1) * v
		}
		total := 0
		for _, v := range weights {
			total += v
		}
		line.Mean = total / (n + 1)
		distinct[w%13] = w%13 != 5
		for _, is := range distinct {
			if is {
				line.Distinct++
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// windows are the lines of the windows of a key.
func (k *kinds) windows(key int) []kindsLine {
	var lines []kindsLine
	for n := range k.rounds {
		if n%windowRecords == 0 {
			lines = append(lines, kindsLine{Kind: "window", Key: key, N: n / windowRecords})
		}
		last := &lines[len(lines)-1]
		last.Count++
		last.Sum += (n*n*31 + key*17) % 1009
	}
	return lines
}

// expected are all lines that are the same however the job ran: keyed and
// plain are the parallelism of the operators with keyed and with operator state
// when it ended.
func (k *kinds) expected(keyed, plain int) map[kindsLine]int {
	lines := map[kindsLine]int{}
	for key := range k.splits * k.keys {
		for _, l := range append(k.running(key), k.windows(key)...) {
			lines[l]++
		}
	}
	for kind, subtasks := range map[string]int{"keyed-rule": keyed, "rule": plain} {
		for subtask := range subtasks {
			for change := range k.rules {
				lines[kindsLine{Kind: kind, Subtask: subtask, Name: fmt.Sprintf("rule-%d", change%ruleNames), Count: (k.rules-1-change%ruleNames)/ruleNames + 1}] = 1
			}
		}
	}
	return lines
}

// check compares the output of a job that has ended with what it has to be.
func (k *kinds) check(t *testing.T, keyed, plain int) {
	t.Helper()
	files, err := flightstruth.Committed(k.output)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.compare(files, keyed, plain); err != nil {
		t.Error(err)
	}
}

func (k *kinds) compare(files flightstruth.Files, keyed, plain int) error {
	var wrong []string
	want, ticks, split, unions := k.expected(keyed, plain), map[int]map[int]bool{}, 0, map[string]int{}
	for name, content := range files {
		for raw := range strings.Lines(string(content)) {
			var l kindsLine
			if err := json.Unmarshal([]byte(raw), &l); err != nil || !strings.HasSuffix(raw, "\n") {
				return fmt.Errorf("%s has the line %.80q: %w", name, raw, err)
			}
			switch l.Kind {
			case "tick":
				if ticks[l.Key] == nil {
					ticks[l.Key] = map[int]bool{}
				}
				if ticks[l.Key][l.N] {
					wrong = append(wrong, fmt.Sprintf("key %d: tick %d twice", l.Key, l.N))
				}
				ticks[l.Key][l.N] = true
			case "split":
				split += l.Count
			case "union":
				// Every subtask has all elements; those that it did not make are equal.
				if known, ok := unions[l.Name]; ok && known != l.Count {
					wrong = append(wrong, fmt.Sprintf("union element %s is %d and %d", l.Name, known, l.Count))
				}
				unions[l.Name] = l.Count
			default:
				if want[l]--; want[l] < 0 {
					wrong = append(wrong, fmt.Sprintf("too much: %+v", l))
				}
			}
		}
	}
	for l, n := range want {
		if n > 0 {
			wrong = append(wrong, fmt.Sprintf("missing: %+v", l))
		}
	}
	for key := range k.splits * k.keys {
		if n := len(ticks[key]); n == 0 || !ticks[key][n-1] {
			wrong = append(wrong, fmt.Sprintf("key %d has the ticks %v", key, slices.Sorted(maps.Keys(ticks[key]))))
		}
	}
	if split != k.records() {
		wrong = append(wrong, fmt.Sprintf("the split lists have counted %d of %d records", split, k.records()))
	}
	union := 0
	for _, n := range unions {
		union += n
	}
	if union != k.records() {
		wrong = append(wrong, fmt.Sprintf("the union lists have counted %d of %d records", union, k.records()))
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("the output is wrong in %d places, among them: %s", len(wrong), strings.Join(wrong[:min(10, len(wrong))], "; "))
}

// TestKindsOracleNoticesFaults: a comparison that finds nothing proves nothing.
func TestKindsOracleNoticesFaults(t *testing.T) {
	k := &kinds{splits: 1, keys: 2, rounds: 8, rules: 14}
	var lines []kindsLine
	for l := range k.expected(2, 1) {
		lines = append(lines, l)
	}
	lines = append(lines, kindsLine{Kind: "tick", Key: 0}, kindsLine{Kind: "tick", Key: 1}, kindsLine{Kind: "tick", Key: 1, N: 1},
		kindsLine{Kind: "split", Count: 6}, kindsLine{Kind: "split", Subtask: 1, Count: 10},
		kindsLine{Kind: "union", Name: "a", Count: 4}, kindsLine{Kind: "union", Name: "a", Subtask: 1, Count: 4}, kindsLine{Kind: "union", Name: "b", Count: 12})
	output := func(lines []kindsLine) flightstruth.Files {
		var content []byte
		for _, l := range lines {
			raw, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			content = append(append(content, raw...), '\n')
		}
		return flightstruth.Files{"part": content}
	}
	if err := k.compare(output(lines), 2, 1); err != nil {
		t.Error(err)
	}
	for i, l := range lines {
		if isCopy := l.Kind == "union" && l.Name == "a"; !isCopy && k.compare(output(slices.Delete(slices.Clone(lines), i, i+1)), 2, 1) == nil && (l.Kind != "tick" || l.N == 0) {
			t.Errorf("nobody misses %+v", l)
		}
		if k.compare(output(append(slices.Clone(lines), l)), 2, 1) == nil && l.Kind != "union" {
			t.Errorf("nobody notices %+v twice", l)
		}
	}
}
