package flightstruth

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const input = `{"date":"2001/01/01 00:47","delay":66,"distance":1,"origin":"DTW","destination":"LAS"}
{"date":"2001/01/01 01:10","delay":15,"distance":1,"origin":"HNL","destination":"SFO"}
{"date":"2001/01/01 01:24","delay":-5,"distance":1,"origin":"DTW","destination":"OAK"}
{"date":"2001/01/01 01:25","delay":16,"distance":1,"origin":"DTW","destination":"OAK"}
`

const exact = `{"origin":"DTW","flights":1,"delay_sum":66,"late":1}
{"origin":"HNL","flights":1,"delay_sum":15,"late":0}
{"origin":"DTW","flights":2,"delay_sum":61,"late":1}
{"origin":"DTW","flights":3,"delay_sum":77,"late":2}
`

func truthOf(t *testing.T) *Truth {
	t.Helper()
	name := filepath.Join(t.TempDir(), "flights.jsonl")
	if err := os.WriteFile(name, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	truth, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

func TestCheck(t *testing.T) {
	last := `{"origin":"DTW","flights":3,"delay_sum":77,"late":2}` + "\n"
	for _, test := range []struct {
		name, output            string
		duplicates, lost, wrong int
	}{
		{"exact", exact, 0, 0, 0},
		{"another order of the origin's flights", `{"origin":"DTW","flights":1,"delay_sum":16,"late":1}
{"origin":"DTW","flights":2,"delay_sum":11,"late":1}
{"origin":"DTW","flights":3,"delay_sum":77,"late":2}
{"origin":"HNL","flights":1,"delay_sum":15,"late":0}
`, 0, 0, 0},
		{"nothing", "", 0, 4, 0},
		{"a line twice", exact + last, 1, 0, 0},
		{"a flight counted twice", exact + `{"origin":"DTW","flights":4,"delay_sum":93,"late":3}` + "\n", 1, 0, 0},
		{"unknown origin", exact + `{"origin":"XXX","flights":1,"delay_sum":93,"late":1}` + "\n", 1, 0, 0},
		{"the last line lost", strings.TrimSuffix(exact, last), 0, 1, 0},
		{"one flight counted for another", strings.Replace(exact, `"delay_sum":61`, `"delay_sum":132`, 1), 0, 0, 2},
		{"late miscounted", strings.Replace(exact, `"delay_sum":15,"late":0`, `"delay_sum":15,"late":1`, 1), 0, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, err := truthOf(t).Check(Files{"part": []byte(test.output)})
			if err != nil {
				t.Fatal(err)
			}
			if result.Duplicates != test.duplicates || result.Lost != test.lost || result.WrongCount != test.wrong {
				t.Errorf("got %+v, want %d duplicates, %d lost, %d wrong", result, test.duplicates, test.lost, test.wrong)
			}
			if ok := result.Error() == nil; ok != (test.duplicates+test.lost+test.wrong == 0) {
				t.Errorf("error is %v", result.Error())
			}
		})
	}
}

func TestHalfALineIsAnError(t *testing.T) {
	if _, err := truthOf(t).Check(Files{"part": []byte(strings.TrimSuffix(exact, "\n"))}); err == nil {
		t.Error("an output whose last line does not end was accepted")
	}
}

func TestCommittedLeavesHiddenFilesOut(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"part-1": exact, ".part-2.pending": exact, ".staging/part-3": exact} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, err := Committed(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || before.Lines() != 4 {
		t.Fatalf("committed are %d files with %d lines, want 1 with 4", len(before), before.Lines())
	}
	if err := before.Unchanged(Files{"part-1": []byte(exact), "part-4": nil}); err != nil {
		t.Error(err)
	}
	if err := before.Unchanged(Files{"part-1": []byte(exact + exact)}); err == nil {
		t.Error("a file that grew was taken for unchanged")
	}
	if err := before.Unchanged(Files{}); err == nil {
		t.Error("a file that is gone was taken for unchanged")
	}
}

func TestCommittedOfNoDirectory(t *testing.T) {
	files, err := Committed(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(files) != 0 {
		t.Errorf("got %v, %v; want nothing", files, err)
	}
}
