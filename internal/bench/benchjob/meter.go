package main

import (
	"runtime"
	"time"
)

// meter measures a stretch of records in one subtask, between the first
// record after a warm-up and the last.
type meter struct {
	warmUp  uint64
	last    uint64 // 0: until report
	seen    uint64
	started time.Time
	ended   time.Time
	mallocs uint64
}

// record counts one; it starts the clock when the warm-up is over.
func (m *meter) record() {
	m.seen++
	if m.seen == m.warmUp {
		m.start()
	}
	if m.seen == m.last {
		m.ended = time.Now()
	}
}

func (m *meter) start() {
	m.mallocs = mallocs()
	m.started = time.Now()
}

// report writes records per second and allocations of the whole process per record.
func (m *meter) report(bytesPerRecord uint64) error {
	if m.ended.IsZero() {
		m.ended = time.Now()
	}
	elapsed := m.ended.Sub(m.started).Seconds()
	n := m.seen - m.warmUp
	return report("records_per_second=%.0f\nbytes_per_second=%.0f\nallocations_per_record=%.4f",
		float64(n)/elapsed, float64(n*bytesPerRecord)/elapsed, float64(mallocs()-m.mallocs)/float64(n))
}

func mallocs() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.Mallocs
}
