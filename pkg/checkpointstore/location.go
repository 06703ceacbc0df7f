package checkpointstore

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
)

const (
	metadataName        = "_metadata"
	checkpointDirPrefix = "chk-"
	savepointDirPrefix  = "savepoint-"
)

// Location is where one checkpoint or savepoint is stored: a value that
// travels to the subtasks that write into it.
type Location struct {
	// Base is the path or URI that handle names are relative to.
	Base string
	// Dir is the directory of a checkpoint below Base; empty for a savepoint,
	// whose base is its own directory.
	Dir string
}

// CheckpointLocation is where checkpoint id of a job is stored below dir
// (execution.checkpointing.dir).
func CheckpointLocation(dir string, job ids.JobID, id ids.CheckpointID) Location {
	return Location{Base: JobBase(dir, job), Dir: checkpointDir(id)}
}

// SavepointLocation is where savepoint id of a job is stored below
// savepointDir, a directory that many jobs may share. The name has the whole
// job ID: a savepoint that is given up is deleted with its directory, which
// must never be another job's.
func SavepointLocation(savepointDir string, job ids.JobID, id ids.CheckpointID) Location {
	return SavepointAt(joinURI(savepointDir, fmt.Sprintf("%s%s-%d", savepointDirPrefix, job, id)))
}

// SavepointAt is the location of a savepoint whose own directory is known.
func SavepointAt(uri string) Location { return Location{Base: trimURI(uri)} }

// JobBase is the base of all checkpoints of a job below dir.
func JobBase(dir string, job ids.JobID) string { return joinURI(dir, string(job)) }

// URI names the checkpoint to users: the directory that has its metadata.
func (l Location) URI() string { return joinURI(l.Base, l.Dir) }

// name is the name of a file of the checkpoint relative to Base.
func (l Location) name(file string) string { return path.Join(l.Dir, file) }

func checkpointDir(id ids.CheckpointID) string {
	return checkpointDirPrefix + strconv.FormatUint(uint64(id), 10)
}

// parseCheckpointDir reads what checkpointDir wrote, and nothing else.
func parseCheckpointDir(element string) (ids.CheckpointID, bool) {
	digits, ok := strings.CutPrefix(element, checkpointDirPrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || checkpointDir(ids.CheckpointID(id)) != element {
		return 0, false
	}
	return ids.CheckpointID(id), true
}

// StateFile names a state file within its checkpoint. The zero Seq is as good
// as any; a subtask counts up for each file of one checkpoint.
type StateFile struct {
	Attempt ids.AttemptID
	Subtask ids.SubtaskID
	Seq     uint32
}

// String is the file's name: "3.1-2.0.5".
func (f StateFile) String() string {
	return fmt.Sprintf("%s-%d.%d.%d", f.Attempt, f.Subtask.Vertex, f.Subtask.Index, f.Seq)
}

// parseStateFile reads what StateFile.String wrote, and nothing else.
func parseStateFile(name string) (StateFile, bool) {
	left, right, ok := strings.Cut(name, "-")
	if !ok {
		return StateFile{}, false
	}
	attempt, err := ids.ParseAttemptID(left)
	if err != nil {
		return StateFile{}, false
	}
	parts := strings.Split(right, ".")
	if len(parts) != 3 {
		return StateFile{}, false
	}
	vertex, err1 := strconv.ParseInt(parts[0], 10, 32)
	index, err2 := strconv.ParseInt(parts[1], 10, 32)
	seq, err3 := strconv.ParseUint(parts[2], 10, 32)
	file := StateFile{
		Attempt: attempt,
		Subtask: ids.SubtaskID{Vertex: ids.VertexID(vertex), Index: int32(index)},
		Seq:     uint32(seq),
	}
	if err1 != nil || err2 != nil || err3 != nil || file.String() != name {
		return StateFile{}, false
	}
	return file, true
}

// joinURI appends a relative name to a path or URI. An empty name adds nothing.
func joinURI(uri, name string) string {
	uri = trimURI(uri)
	switch {
	case name == "":
		return uri
	case strings.HasSuffix(uri, "/"):
		return uri + name
	}
	return uri + "/" + name
}

// trimURI takes slashes off the end, except those of a root.
func trimURI(uri string) string {
	for strings.HasSuffix(uri, "/") && uri != "/" && !strings.HasSuffix(uri, "://") && !strings.HasSuffix(uri, ":///") {
		uri = uri[:len(uri)-1]
	}
	return uri
}

// splitURI separates the last element of a path or URI from what is before
// it; ok is false when there is only a root or a bucket.
func splitURI(uri string) (parent, last string, ok bool) {
	uri = trimURI(uri)
	root := 0
	if scheme := strings.Index(uri, "://"); scheme >= 0 {
		root = scheme + len("://")
	}
	slash := strings.LastIndexByte(uri[root:], '/')
	if slash < 0 {
		return "", "", false
	}
	parent, last = uri[:root+slash], uri[root+slash+1:]
	if parent == uri[:root] {
		parent += "/"
	}
	return parent, last, last != ""
}
