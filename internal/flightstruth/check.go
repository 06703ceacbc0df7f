package flightstruth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// line is one line of the job's output.
type line struct {
	Origin   string `json:"origin"`
	Flights  int    `json:"flights"`
	DelaySum int64  `json:"delay_sum"`
	Late     int    `json:"late"`
}

// Result is what comparing an output with the truth gave.
type Result struct {
	// Records is the number of lines that were checked.
	Records int
	// Duplicates are lines that are there more than once, or whose count no
	// flight stands for; Lost are flights without a line.
	Duplicates, Lost int
	// Wrong are lines whose sums do not fit their origin's flights, described;
	// at most wrongMax of them, WrongCount counts all.
	Wrong      []string
	WrongCount int
}

// wrongMax is enough to see what kind of mistake it is.
const wrongMax = 5

// IsExact reports whether every flight is counted exactly once.
func (r Result) IsExact() bool { return r.Duplicates == 0 && r.Lost == 0 && r.WrongCount == 0 }

// Error describes what is wrong, nil when the output is exact.
func (r Result) Error() error {
	if r.IsExact() {
		return nil
	}
	text := fmt.Sprintf("the output is not exact: %d lines, %d duplicates, %d lost, %d wrong", r.Records, r.Duplicates, r.Lost, r.WrongCount)
	for _, wrong := range r.Wrong {
		text += "; " + wrong
	}
	return errors.New(text)
}

// Check compares the files with the truth.
func (t *Truth) Check(files Files) (Result, error) {
	result := Result{}
	lines := map[string]map[int]line{} // by origin and count
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for raw := range bytes.Lines(files[name]) {
			var l line
			// The last line of a committed file ends like the others: half a line is a fault.
			if err := json.Unmarshal(raw, &l); err != nil || raw[len(raw)-1] != '\n' {
				return Result{}, fmt.Errorf("check output: %s has the line %.80q: %w", name, raw, orUnended(err))
			}
			result.Records++
			if lines[l.Origin] == nil {
				lines[l.Origin] = map[int]line{}
			}
			earlier, seen := lines[l.Origin][l.Flights]
			switch {
			case l.Flights < 1 || l.Flights > t.counts[l.Origin]:
				result.Duplicates++
				result.note("%s: flight %d of %d", l.Origin, l.Flights, t.counts[l.Origin])
			case seen:
				result.Duplicates++
				result.note("%s: flight %d twice, with delay sums %d and %d", l.Origin, l.Flights, earlier.DelaySum, l.DelaySum)
			default:
				lines[l.Origin][l.Flights] = l
			}
		}
	}
	for _, origin := range slices.Sorted(maps.Keys(t.counts)) {
		t.checkOrigin(origin, lines[origin], &result)
	}
	return result, nil
}

func orUnended(err error) error {
	if err != nil {
		return err
	}
	return errors.New("it does not end in a line break")
}

// checkOrigin takes the flights out of the truth that the steps between lines stand for.
func (t *Truth) checkOrigin(origin string, lines map[int]line, result *Result) {
	remaining := maps.Clone(t.delays[origin])
	previous, gap := line{}, false
	for n := 1; n <= t.counts[origin]; n++ {
		current, ok := lines[n]
		if !ok {
			result.Lost++
			gap = true
			continue
		}
		// Over a gap the step is more than one flight: only its ends are known.
		if !gap {
			delay, late := current.DelaySum-previous.DelaySum, current.Late-previous.Late
			wantLate := 0
			if delay > lateMinutes {
				wantLate = 1
			}
			switch {
			case remaining[delay] == 0:
				result.wrong("%s: flight %d adds a delay of %d, of which there is none left", origin, n, delay)
			case late != wantLate:
				result.wrong("%s: flight %d with delay %d adds %d late flights", origin, n, delay, late)
			}
			remaining[delay]--
		}
		previous, gap = current, false
	}
}

func (r *Result) wrong(format string, args ...any) {
	r.WrongCount++
	r.note(format, args...)
}

func (r *Result) note(format string, args ...any) {
	if len(r.Wrong) < wrongMax {
		r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
	}
}
