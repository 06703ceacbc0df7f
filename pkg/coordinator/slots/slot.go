package slots

import (
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
)

// Slot is one slot of a TaskManager: it holds one subtask of each vertex of a job.
type Slot struct {
	TaskManager ids.TaskManagerID
	Index       int32
}

// String prints taskmanager#index.
func (s Slot) String() string { return fmt.Sprintf("%s#%d", s.TaskManager, s.Index) }

// Compare orders by TaskManager, then index.
func (s Slot) Compare(o Slot) int {
	switch {
	case s.TaskManager < o.TaskManager:
		return -1
	case s.TaskManager > o.TaskManager:
		return 1
	}
	return int(s.Index) - int(o.Index)
}
