package ids

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// JobID names one job for its whole life, across restarts of everything:
// 32 lower-case hexadecimal digits, as in Flink.
type JobID string

// ParseJobID checks that s has the form of a JobID.
func ParseJobID(s string) (JobID, error) {
	if len(s) != 32 {
		return "", fmt.Errorf("job id %q: want 32 hexadecimal digits, have %d characters", s, len(s))
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("job id %q: %q is not a lower-case hexadecimal digit", s, c)
		}
	}
	return JobID(s), nil
}

// OperatorUID is the stable name that the user gave an operator. State is
// matched by it on restore. Letters, digits, '-', '_' and '.', at most 100.
type OperatorUID string

// operatorUIDLengthMax bounds UIDs because they become part of file names.
const operatorUIDLengthMax = 100

// Validate says what is wrong with the UID, or nil.
func (u OperatorUID) Validate() error {
	if u == "" {
		return errors.New("operator UID is empty: give every operator a name that stays the same between versions of the program")
	}
	if len(u) > operatorUIDLengthMax {
		return fmt.Errorf("operator UID %.20q… is %d bytes long: at most %d are allowed", string(u), len(u), operatorUIDLengthMax)
	}
	if u[0] == '.' {
		return fmt.Errorf("operator UID %q starts with a dot: dot files are hidden", string(u))
	}
	for _, c := range u {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return fmt.Errorf("operator UID %q has the character %q: use letters, digits, '-', '_' and '.'", string(u), c)
		}
	}
	return nil
}

// VertexID is the position of a vertex in its ExecutionGraph. It is not
// stable between versions of a program; OperatorUID is.
type VertexID int32

// SubtaskID names one parallel instance of a vertex.
type SubtaskID struct {
	Vertex VertexID
	Index  int32
}

// String prints vertex/index, as in "2/0".
func (s SubtaskID) String() string { return fmt.Sprintf("%d/%d", s.Vertex, s.Index) }

// Compare orders by vertex, then index.
func (s SubtaskID) Compare(o SubtaskID) int {
	if s.Vertex != o.Vertex {
		return int(s.Vertex) - int(o.Vertex)
	}
	return int(s.Index) - int(o.Index)
}

// FencingToken grows with each JobManager leadership of a job. The holder of
// an older one is refused everywhere (I8). 0 is no token.
type FencingToken uint64

// AttemptID names one execution of a job's subtasks. All subtasks of one
// deployment share it, because a failover restarts the whole job. It carries
// the fencing token of the JobManager that deployed it, so attempts of two
// leaders never meet: later leaders have larger attempts.
type AttemptID struct {
	Token  FencingToken
	Number uint32
}

// String prints token.number, as in "3.1"; object and file names use it.
func (a AttemptID) String() string { return fmt.Sprintf("%d.%d", uint64(a.Token), a.Number) }

// IsZero reports whether a is no attempt.
func (a AttemptID) IsZero() bool { return a == AttemptID{} }

// Less reports whether a is older than b.
func (a AttemptID) Less(b AttemptID) bool {
	if a.Token != b.Token {
		return a.Token < b.Token
	}
	return a.Number < b.Number
}

// ParseAttemptID reads what AttemptID.String wrote.
func ParseAttemptID(s string) (AttemptID, error) {
	left, right, ok := strings.Cut(s, ".")
	if !ok {
		return AttemptID{}, fmt.Errorf("attempt %q: want TOKEN.NUMBER", s)
	}
	token, err := strconv.ParseUint(left, 10, 64)
	if err != nil {
		return AttemptID{}, fmt.Errorf("attempt %q: %w", s, err)
	}
	number, err := strconv.ParseUint(right, 10, 32)
	if err != nil {
		return AttemptID{}, fmt.Errorf("attempt %q: %w", s, err)
	}
	return AttemptID{Token: FencingToken(token), Number: uint32(number)}, nil
}

// CheckpointID numbers the checkpoints and savepoints of a job, growing over
// its whole life and across JobManager failover (I6). 0 is no checkpoint.
type CheckpointID uint64

// TaskManagerID names one life of a TaskManager process: a restarted process
// has a new one.
type TaskManagerID string

// ExecutorID names one task executor process: the executor of an attempt of a
// job on a TaskManager.
type ExecutorID struct {
	Job         JobID
	Attempt     AttemptID
	TaskManager TaskManagerID
}

// String prints job/attempt@taskmanager.
func (e ExecutorID) String() string {
	return fmt.Sprintf("%s/%s@%s", e.Job, e.Attempt, e.TaskManager)
}
