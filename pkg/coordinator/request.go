package coordinator

import "fmt"

// requestedMax bounds the users who wait for a checkpoint that is not yet
// triggered. They all get the same one.
const requestedMax = 64

// onCheckpointRequested takes a request on, or refuses it with the reason. It
// does not wait for interval and min-pause, only for checkpoints under way beyond
// max-concurrent-checkpoints. A stop that was asked for meanwhile goes first, and then
// there is no checkpoint: the end of the attempt answers.
func (c *Coordinator) onCheckpointRequested(e CheckpointRequested) {
	reason := c.refuseNew()
	if reason == "" && len(c.requested) >= requestedMax {
		reason = fmt.Sprintf("%d users wait for a checkpoint already", requestedMax)
	}
	if reason != "" {
		c.emit(Answer{Request: e.Request, Status: c.status, Error: reason})
		return
	}
	c.requested = append(c.requested, e.Request)
}

// answerCheckpoint tells those who asked for a checkpoint what became of it:
// failure is empty if it is published.
func (c *Coordinator) answerCheckpoint(p *pendingCheckpoint, failure string) {
	for _, id := range p.askedBy {
		a := Answer{Request: id, Checkpoint: p.id, Status: c.status, Error: failure}
		if failure == "" {
			a.Path = p.uri
		}
		c.emit(a)
	}
	p.askedBy = nil
}
