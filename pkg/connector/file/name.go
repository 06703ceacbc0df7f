package file

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

// jobIDLength is the number of characters of an ids.JobID.
const jobIDLength = 32

// Ends of the names of files that are not committed yet, which also start
// with a dot.
const (
	inProgressSuffix = ".inprogress"
	pendingSuffix    = ".pending"
)

// writerName names who writes a file: no two processes are ever the same writer.
type writerName struct {
	job      ids.JobID
	operator ids.OperatorUID
	attempt  ids.AttemptID
	subtask  int
}

// String prints part-<job>-<uid>-<attempt>-<subtask>. The UID may contain
// dashes, and is still found: what surrounds it cannot.
func (w writerName) String() string {
	return fmt.Sprintf("part-%s-%s-%s-%d", w.job, w.operator, w.attempt, w.subtask)
}

// isOf reports whether the file belongs to the same operator of the same job.
func (w writerName) isOf(job ids.JobID, uid ids.OperatorUID) bool {
	return w.job == job && w.operator == uid
}

// committedName is the name of a file that is visible.
type committedName struct {
	writerName
	checkpoint ids.CheckpointID
	// extension starts with a dot.
	extension string
}

func (n committedName) String() string {
	return fmt.Sprintf("%s-%d%s", n.writerName, uint64(n.checkpoint), n.extension)
}

// pendingName is the name of the same file before its commit.
func pendingName(committed string) string { return "." + committed + pendingSuffix }

// inProgressName is the name of a writer's file while it is written. The
// checkpoint that will end it is not known then; number tells a writer's
// files apart.
type inProgressName struct {
	writerName
	number uint64
}

func (n inProgressName) String() string {
	return fmt.Sprintf(".%s-n%d%s", n.writerName, n.number, inProgressSuffix)
}

// parsePending reads the name of a pending file. ok is false for any name that
// this package does not make.
func parsePending(name string) (n committedName, ok bool) {
	committed, hidden := strings.CutPrefix(name, ".")
	committed, pending := strings.CutSuffix(committed, pendingSuffix)
	if !hidden || !pending {
		return n, false
	}
	return parseCommitted(committed)
}

// parseCommitted reads the name of a committed file.
func parseCommitted(name string) (n committedName, ok bool) {
	w, last, ok := parseWriter(name)
	if !ok {
		return n, false
	}
	digits, extension, ok := strings.Cut(last, ".")
	if !ok {
		return n, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	n = committedName{writerName: w, checkpoint: ids.CheckpointID(id), extension: "." + extension}
	// Printing it again refuses what only looks similar, such as leading zeros.
	return n, err == nil && validateExtension(n.extension) == nil && n.String() == name
}

// parseInProgress reads the name of a file that is being written.
func parseInProgress(name string) (n inProgressName, ok bool) {
	rest, hidden := strings.CutPrefix(name, ".")
	rest, inProgress := strings.CutSuffix(rest, inProgressSuffix)
	if !hidden || !inProgress {
		return n, false
	}
	w, last, ok := parseWriter(rest)
	if !ok {
		return n, false
	}
	digits, ok := strings.CutPrefix(last, "n")
	number, err := strconv.ParseUint(digits, 10, 64)
	n = inProgressName{writerName: w, number: number}
	return n, ok && err == nil && n.String() == name
}

// parseWriter reads the writer from the start of a name, and returns what
// follows its last dash.
func parseWriter(name string) (w writerName, last string, ok bool) {
	rest, ok := strings.CutPrefix(name, "part-")
	if !ok || len(rest) <= jobIDLength || rest[jobIDLength] != '-' {
		return w, "", false
	}
	job, err := ids.ParseJobID(rest[:jobIDLength])
	if err != nil {
		return w, "", false
	}
	fields := strings.Split(rest[jobIDLength+1:], "-")
	if len(fields) < 4 { // the UID, attempt, subtask, last
		return w, "", false
	}
	end := len(fields) - 3
	uid := ids.OperatorUID(strings.Join(fields[:end], "-"))
	if uid.Validate() != nil {
		return w, "", false
	}
	attempt, err := ids.ParseAttemptID(fields[end])
	if err != nil {
		return w, "", false
	}
	subtask, err := strconv.ParseUint(fields[end+1], 10, 31)
	if err != nil {
		return w, "", false
	}
	return writerName{job: job, operator: uid, attempt: attempt, subtask: int(subtask)}, fields[end+2], true
}

// validateExtension keeps extensions apart from the ends of hidden names.
func validateExtension(extension string) error {
	if len(extension) < 2 || extension[0] != '.' {
		return fmt.Errorf("extension %q: want a dot and letters or digits, as in .csv", extension)
	}
	for _, c := range extension[1:] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return fmt.Errorf("extension %q has the character %q: want a dot and letters or digits, as in .csv", extension, c)
		}
	}
	return nil
}
