package driver

import (
	"sync"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// rateWindow is how far back rates look: long enough to smooth heartbeats of
// a second, short enough that a stall shows.
const rateWindow = 5 * time.Second

// samplesMax bounds the samples of a vertex in one window. Heartbeats that
// come faster than rateWindow/samplesMax share a sample.
const samplesMax = 64

// metrics keeps the counters that executors send with their heartbeats.
// Counters count since the attempt started: they never go back within one
// attempt, and start at zero with the next one, which reads again what the
// failed one had read after the restored checkpoint.
type metrics struct {
	mu struct {
		sync.Mutex
		attempt  ids.AttemptID
		subtasks map[ids.SubtaskID]counters
		vertices []vertexSamples
	}
	vertexCount int
}

type counters struct{ in, out, spilled int64 }

// vertexSamples are sums over a vertex, oldest first.
type vertexSamples struct{ samples []sample }

type sample struct {
	at time.Time
	counters
}

func newMetrics(g *graph.ExecutionGraph) *metrics {
	return &metrics{vertexCount: len(g.Vertices)}
}

// update takes what one executor of the attempt has counted.
func (m *metrics) update(now time.Time, attempt ids.AttemptID, list []*pb.SubtaskMetrics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if attempt.Less(m.mu.attempt) {
		return
	}
	if attempt != m.mu.attempt || m.mu.subtasks == nil {
		m.mu.attempt = attempt
		m.mu.subtasks = map[ids.SubtaskID]counters{}
		m.mu.vertices = make([]vertexSamples, m.vertexCount)
	}
	for _, p := range list {
		id := ids.SubtaskID{Vertex: ids.VertexID(p.GetSubtask().GetVertex()), Index: p.GetSubtask().GetIndex()}
		if id.Vertex < 0 || int(id.Vertex) >= m.vertexCount {
			continue
		}
		old := m.mu.subtasks[id]
		m.mu.subtasks[id] = counters{
			in: max(old.in, p.GetRecordsIn()), out: max(old.out, p.GetRecordsOut()), spilled: max(old.spilled, p.GetSpilledBytes()),
		}
	}
	sums := make([]counters, m.vertexCount)
	for id, c := range m.mu.subtasks {
		sums[id.Vertex].in += c.in
		sums[id.Vertex].out += c.out
	}
	for i := range sums {
		m.mu.vertices[i].add(sample{at: now, counters: sums[i]})
	}
}

// add appends a sample and drops those that no rate needs any more.
func (v *vertexSamples) add(s sample) {
	if n := len(v.samples); n > 1 && s.at.Sub(v.samples[n-2].at) < rateWindow/samplesMax {
		v.samples[n-1] = s
		return
	}
	v.samples = append(v.samples, s)
	// The newest one that is older than the window is where the rate starts.
	for len(v.samples) > 2 && s.at.Sub(v.samples[1].at) >= rateWindow {
		v.samples = v.samples[1:]
	}
}

// rates are records per second over the window that ends now.
func (v *vertexSamples) rates(now time.Time) (in, out float64) {
	if len(v.samples) < 2 {
		return 0, 0
	}
	last := v.samples[len(v.samples)-1]
	if now.Sub(last.at) > rateWindow {
		// Nobody has counted for a while: the job stands still or is over.
		return 0, 0
	}
	first := v.samples[0]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(last.in-first.in) / seconds, float64(last.out-first.out) / seconds
}

// vertexMetrics is a copy of what is known of one vertex.
type vertexMetrics struct {
	counters
	inRate, outRate float64
	subtasks        map[int32]counters
}

// of returns the counters of each vertex in the attempt, or of the last one
// that was heard of if that has sent nothing yet.
func (m *metrics) of(now time.Time) []vertexMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]vertexMetrics, m.vertexCount)
	for i := range m.mu.vertices {
		samples := &m.mu.vertices[i]
		out[i].inRate, out[i].outRate = samples.rates(now)
	}
	for id, c := range m.mu.subtasks {
		v := &out[id.Vertex]
		v.in += c.in
		v.out += c.out
		v.spilled += c.spilled
		if v.subtasks == nil {
			v.subtasks = map[int32]counters{}
		}
		v.subtasks[id.Index] = c
	}
	return out
}
