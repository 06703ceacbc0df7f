package subtask

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// localCopies keeps on this host's disk what a subtask stored, so that a later
// attempt here need not fetch it. Work of the restore and snapshot lanes calls
// its methods, one at a time.
//
// In the subtask's directory, files/ has the files under their names in the
// store, with '%' for '/': those are never used twice, so that equal names of
// one job mean equal bytes. For each checkpoint there is a manifest, written
// last, and only what a manifest names is used. Shared files are links to the
// backend's own: they take space only when the backend has dropped them. What
// it may still write to is copied.
//
// A copy that fails costs a later restore time and no checkpoint anything.
// Nothing is synced: the directory does not outlive its TaskManager's process.
type localCopies struct {
	root string // of all subtasks of the job; empty for none
	dir  string // the subtask's own
	// restored is the checkpoint that the attempt started from: the only one
	// of earlier attempts that may still be restored.
	restored ids.CheckpointID
	isOpen   bool
	// isPruned: what is left of earlier attempts is the restored set.
	isPruned bool
	sets     map[ids.CheckpointID][]localFile
	present  map[string]bool // what files/ has
	pending  []localFile     // of the snapshot that is being written
	err      error           // why the pending set is not whole, or something was not removed
	told     string          // the cause that takeErr returned last, if it lasts
}

// localFile is a line of a manifest.
type localFile struct {
	name string // in the store
	size int64
	crc  uint32
	// isCopy: written by us, not linked, so that it is read before it is trusted.
	isCopy bool
}

const (
	localFilesDir = "files"
	localSetName  = "chk-"
	// localSetEnd is the last line of a whole manifest.
	localSetEnd = "end"
	// localSetsMax bounds the sets beside that of the last published checkpoint:
	// the one acknowledged last, and one whose end has not been told.
	localSetsMax = 2
)

// LocalName is the name of a subtask's directory below Config.LocalDir.
func LocalName(id ids.SubtaskID) string { return fmt.Sprintf("%d.%d", id.Vertex, id.Index) }

func (l *localCopies) init(root string, id ids.SubtaskID, restored ids.CheckpointID) {
	if root != "" {
		*l = localCopies{root: root, dir: filepath.Join(root, LocalName(id)), restored: restored}
	}
}

// isOff reports whether nothing is kept. The methods may be called on nil.
func (l *localCopies) isOff() bool { return l == nil || l.root == "" }

// localIndex has what is on this host, by name in the store. Its methods may
// be called concurrently.
type localIndex map[string]localCopy

type localCopy struct {
	localFile
	path string
}

// open finds what earlier attempts kept, the own subtask's first: subtasks may
// have changed places since.
func (l *localCopies) open() localIndex {
	if l.isOff() {
		return nil
	}
	l.load()
	index := localIndex{}
	dirs, _ := filepath.Glob(filepath.Join(l.root, "*")) // the pattern is well-formed
	for _, dir := range dirs {
		sets := l.sets
		if dir != l.dir {
			sets, _ = readLocalSets(dir) // what cannot be read is fetched
		}
		for _, set := range sets {
			for _, f := range set {
				if _, has := index[f.name]; !has || dir == l.dir {
					index[f.name] = localCopy{localFile: f, path: filepath.Join(dir, localFilesDir, localFileName(f.name))}
				}
			}
		}
	}
	return index
}

// load reads what is in the own directory, once.
func (l *localCopies) load() {
	if l.isOpen {
		return
	}
	l.isOpen = true
	l.present = map[string]bool{}
	l.sets, l.err = readLocalSets(l.dir)
	entries, err := os.ReadDir(filepath.Join(l.dir, localFilesDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.fail(err)
	}
	for _, e := range entries {
		l.present[e.Name()] = true
	}
}

// readLocalSets reads the whole manifests in a directory.
func readLocalSets(dir string) (map[ids.CheckpointID][]localFile, error) {
	sets := map[ids.CheckpointID][]localFile{}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return sets, err
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), localSetName)
		if !ok {
			continue
		}
		id, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			continue // a temporary file
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return sets, err
		}
		// One that is damaged still has its place, so that it is removed.
		sets[ids.CheckpointID(id)], _ = parseLocalSet(string(content))
	}
	return sets, nil
}

// encodeLocalSet writes a manifest: size, checksum, kind and name of each file.
func encodeLocalSet(files []localFile) []byte {
	var out bytes.Buffer
	for _, f := range files {
		kind := "link"
		if f.isCopy {
			kind = "copy"
		}
		fmt.Fprintf(&out, "%d %08x %s %s\n", f.size, f.crc, kind, f.name)
	}
	out.WriteString(localSetEnd + "\n")
	return out.Bytes()
}

// parseLocalSet reads what encodeLocalSet wrote; ok is false, and there are no
// files, if it is anything else.
func parseLocalSet(content string) (files []localFile, ok bool) {
	lines := strings.Split(content, "\n")
	if len(lines) < 2 || lines[len(lines)-1] != "" || lines[len(lines)-2] != localSetEnd {
		return nil, false
	}
	for _, line := range lines[:len(lines)-2] {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) != 4 || fields[2] != "link" && fields[2] != "copy" {
			return nil, false
		}
		size, sizeErr := strconv.ParseInt(fields[0], 10, 64)
		crc, crcErr := strconv.ParseUint(fields[1], 16, 32)
		if sizeErr != nil || crcErr != nil || size < 0 || fields[3] == "" {
			return nil, false
		}
		files = append(files, localFile{name: fields[3], size: size, crc: uint32(crc), isCopy: fields[2] == "copy"})
	}
	return files, true
}

// localFileName is the name in files/ of what has that name in the store.
func localFileName(name string) string { return strings.ReplaceAll(name, "/", "%") }

// find returns the copy of what the handle names, if it is here and whole.
func (x localIndex) find(h snapshot.StateHandle) (path string, ok bool) {
	if h.IsInline() {
		return "", false
	}
	c, ok := x[h.Name]
	if !ok || c.size != h.Size || c.crc != h.CRC32C {
		return "", false
	}
	info, err := os.Lstat(c.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != h.Size {
		return "", false
	}
	// What is linked was a whole file that never changed, and reading
	// gigabytes of it is what local recovery is there to save.
	if c.isCopy && checkpointstore.VerifyFile(c.path, h) != nil {
		return "", false
	}
	return c.path, true
}

// link makes path a link to the copy, and reports whether it did.
func (x localIndex) link(h snapshot.StateHandle, path string) bool {
	from, ok := x.find(h)
	return ok && os.Link(from, path) == nil
}

// drop removes the copy, which a restore could not use.
func (x localIndex) drop(h snapshot.StateHandle) {
	if c, ok := x[h.Name]; ok {
		_ = os.Remove(c.path) // what is still there has failed once more at worst
	}
}

// read returns the bytes of the copy.
func (x localIndex) read(h snapshot.StateHandle) ([]byte, bool) {
	path, ok := x.find(h)
	if !ok {
		return nil, false
	}
	data, err := os.ReadFile(path)
	return data, err == nil
}

// fail notes that something is not as it should be.
func (l *localCopies) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// takeErr returns what went wrong since the last time, unless the same has gone
// wrong each time since it was returned: a disk that is full or read-only would
// be told of with every checkpoint.
func (l *localCopies) takeErr() error {
	if l.isOff() {
		return nil
	}
	err := l.err
	l.err = nil
	if err == nil {
		l.told = ""
		return nil
	}
	cause := err // what is around it names another file each time
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	if cause.Error() == l.told {
		return nil
	}
	l.told = cause.Error()
	return err
}

// keep adds a file to the pending set, made by create under the path it is given.
func (l *localCopies) keep(h snapshot.StateHandle, isCopy bool, create func(path string) error) {
	if l.isOff() || h.IsInline() || l.err != nil {
		return
	}
	l.load()
	name := localFileName(h.Name)
	if !l.present[name] {
		dir := filepath.Join(l.dir, localFilesDir)
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = create(filepath.Join(dir, name))
		}
		if err != nil {
			l.fail(fmt.Errorf("keep a local copy of %s: %w", h.Name, err))
			return
		}
		l.present[name] = true
	}
	l.pending = append(l.pending, localFile{name: h.Name, size: h.Size, crc: h.CRC32C, isCopy: isCopy})
}

// keepLink keeps a file that never changes.
func (l *localCopies) keepLink(path string, h snapshot.StateHandle) {
	l.keep(h, false, func(to string) error { return os.Link(path, to) })
}

// keepCopy keeps a file that may change later.
func (l *localCopies) keepCopy(path string, h snapshot.StateHandle) {
	l.keep(h, true, func(to string) error { return writeLocal(to, checkpointstore.FileContent(path, h.Size)) })
}

// keepBytes keeps what has been stored from memory.
func (l *localCopies) keepBytes(content []byte, h snapshot.StateHandle) {
	l.keep(h, true, func(to string) error {
		return writeLocal(to, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
	})
}

// writeLocal writes a new file.
func writeLocal(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// localWriter takes the bytes of a snapshot while they are stored.
type localWriter struct {
	l    *localCopies
	path string
	f    *os.File // nil before the first byte
	err  error
}

// localTemporary is where a localWriter writes; there is one at a time.
const localTemporary = "writing"

// writer returns a localWriter, or nil if nothing is kept.
func (l *localCopies) writer() *localWriter {
	if l.isOff() || l.err != nil {
		return nil
	}
	return &localWriter{l: l, path: filepath.Join(l.dir, localTemporary)}
}

// Write implements io.Writer. It never fails: the snapshot is what matters.
func (w *localWriter) Write(p []byte) (int, error) {
	if w.f == nil && w.err == nil {
		if w.err = os.MkdirAll(w.l.dir, 0o700); w.err == nil {
			w.f, w.err = os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		}
	}
	if w.err == nil {
		_, w.err = w.f.Write(p)
	}
	return len(p), nil
}

// keepAs keeps what was written as what the handle names, or drops it if
// storing it failed or it is in the handle.
func (w *localWriter) keepAs(h snapshot.StateHandle, storeErr error) {
	if w.f == nil && w.err == nil {
		return
	}
	if w.f != nil {
		w.err = errors.Join(w.err, w.f.Close())
	}
	if storeErr == nil {
		w.l.keep(h, true, func(to string) error {
			if w.err != nil {
				return w.err
			}
			return os.Rename(w.path, to)
		})
	}
	if err := os.Remove(w.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.l.fail(err)
	}
}

// commit ends the pending set: from now on the checkpoint can be restored here.
func (l *localCopies) commit(id ids.CheckpointID) {
	if l.isOff() {
		return
	}
	files := l.pending
	l.pending = nil
	if l.err != nil || len(files) == 0 {
		return
	}
	path := l.setPath(id)
	temporary := path + ".new"
	err := writeLocal(temporary, func(w io.Writer) error {
		_, err := w.Write(encodeLocalSet(files))
		return err
	})
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		l.fail(fmt.Errorf("keep local copies of checkpoint %d: %w", id, err))
		return
	}
	l.sets[id] = files
}

func (l *localCopies) setPath(id ids.CheckpointID) string {
	return filepath.Join(l.dir, localSetName+strconv.FormatUint(uint64(id), 10))
}

// abandon drops the pending set of a checkpoint that is declined. Its files go
// with the next prune.
func (l *localCopies) abandon() {
	if !l.isOff() {
		l.pending = nil
	}
}

// prune removes what no restore can need: the sets of checkpoints older than
// the published one, of those given up and of earlier attempts, and the files
// that no set has. It runs before a snapshot is written rather than when a
// notification comes, so that removing many files holds no record up.
func (l *localCopies) prune(published ids.CheckpointID, givenUp []ids.CheckpointID) {
	if l.isOff() {
		return
	}
	l.load()
	newer := 0
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(l.sets))) {
		keep := id >= published && !slices.Contains(givenUp, id)
		if !l.isPruned && id != l.restored {
			keep = false // of an earlier attempt
		}
		if keep && id > published {
			newer++
			keep = newer <= localSetsMax
		}
		if keep {
			continue
		}
		if err := os.Remove(l.setPath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.fail(fmt.Errorf("remove local copies of checkpoint %d: %w", id, err))
			continue
		}
		delete(l.sets, id)
	}
	l.isPruned = true
	used := map[string]bool{}
	for _, set := range l.sets {
		for _, f := range set {
			used[localFileName(f.name)] = true
		}
	}
	for name := range l.present {
		if used[name] {
			continue
		}
		if err := os.Remove(filepath.Join(l.dir, localFilesDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.fail(fmt.Errorf("remove a local copy: %w", err))
			continue
		}
		delete(l.present, name)
	}
}
