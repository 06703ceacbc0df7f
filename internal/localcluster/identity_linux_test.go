package localcluster

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " 1 100 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 200"
	for line, want := range map[string]processInfo{
		"123 (job) S" + rest:             {pid: 123, session: 77, started: "987654"},
		"124 (a) b) Z 1 (c) Z" + rest:    {pid: 124, session: 77, started: "987654", isZombie: true},
		"125 (name with space) X" + rest: {pid: 125, session: 77, started: "987654", isZombie: true},
	} {
		if got, err := parseStat(line); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "12 (job", "12 (job) S 1 2", "x (job) S" + rest} {
		if _, err := parseStat(line); err == nil {
			t.Errorf("%q was understood", line)
		}
	}
}
