package flightstruth

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// lateMinutes is the delay above which a flight is late.
const lateMinutes = 15

// Truth is what the input says.
type Truth struct {
	// Records is the number of flights.
	Records int
	// delays are, for each origin, how often each delay occurs.
	delays map[string]map[int64]int
	counts map[string]int
}

// Read reads an input file of the flights job.
func Read(name string) (truth *Truth, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read flights: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	truth = &Truth{delays: map[string]map[int64]int{}, counts: map[string]int{}}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var flight struct {
			Origin string `json:"origin"`
			Delay  int64  `json:"delay"`
		}
		if err := json.Unmarshal(lines.Bytes(), &flight); err != nil {
			return nil, fmt.Errorf("read flights: %s:%d: %w", name, number, err)
		}
		if truth.delays[flight.Origin] == nil {
			truth.delays[flight.Origin] = map[int64]int{}
		}
		truth.delays[flight.Origin][flight.Delay]++
		truth.counts[flight.Origin]++
		truth.Records++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read flights: %w", err)
	}
	return truth, nil
}
