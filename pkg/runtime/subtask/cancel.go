package subtask

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
)

// KeepAll makes Cancel abort nothing: for subtasks that end because their
// attempt does. What is a leftover then is decided by the next attempt.
const KeepAll = ids.CheckpointID(math.MaxUint64)

// cancel is how far a cancelled subtask has come.
type cancel struct {
	keepUpTo ids.CheckpointID
	// err is why something may have stayed that should have been aborted.
	err error
}

// Cancel ends the subtask without committing anything. What its sinks prepared
// for checkpoints after keepUpTo, which never will be published, is aborted
// before it is Canceled; what they prepared for others stays.
func (s *Subtask) Cancel(keepUpTo ids.CheckpointID) {
	switch s.phase {
	case created, restoring:
		// Nothing has been prepared.
		s.end(StatusReport{Status: coordinator.Canceled})
	case running:
		s.phase = cancelling
		s.cancel.keepUpTo = keepUpTo
		s.in.drop()
		s.out.drop()
		s.snapshot.drop()
		s.abortNext()
	case cancelling, ended:
	}
}

// abortNext aborts when no snapshot is being written, which may still persist a
// transaction, and no commit is under way.
func (s *Subtask) abortNext() {
	if s.phase != cancelling || s.snapshot.writing || s.commits.running {
		return
	}
	var runs []func(context.Context) error
	if s.cancel.keepUpTo != KeepAll {
		for i := range s.chain.Operators {
			committing := s.chain.Operators[i].Instance.Committing
			if committing == nil {
				continue
			}
			if run := committing.AbortAfter(s.cancel.keepUpTo); run != nil {
				runs = append(runs, run)
			}
		}
	}
	if len(runs) == 0 {
		s.end(StatusReport{Status: coordinator.Canceled})
		return
	}
	s.commits.running = true
	name := fmt.Sprintf("abort after %d", s.cancel.keepUpTo)
	s.host.Go(Work{Lane: CommitLane, Name: name, Cleanup: true, Run: func(ctx context.Context) Done {
		var all []error
		for _, run := range runs {
			all = append(all, run(ctx))
		}
		err := errors.Join(all...)
		return func() {
			s.commits.running = false
			s.cancel.err = errors.Join(s.cancel.err, err)
			if s.phase == cancelling {
				s.end(StatusReport{Status: coordinator.Canceled})
			}
		}
	}})
}
