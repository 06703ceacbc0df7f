package filetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// Name is what handles in files of this backend have as their backend.
const Name = "filetest"

// manifestName is the Local name of the file that is private to each view: it
// lists the others.
const manifestName = "MANIFEST"

// Backend opens keyed state that can be in files.
type Backend struct {
	// Root is where states lie that are opened without a directory.
	Root string
	// GroupsPerFile is how many adjacent key groups share a file, counted from
	// group 0; 0 stands for 8.
	GroupsPerFile int
	// BeforeFile, if not nil, is called before a file is written and may refuse
	// it, as a full disk does.
	BeforeFile func(operator string, local string) error

	mu struct {
		sync.Mutex
		opened int
	}
}

// Name implements statebackend.Backend.
func (*Backend) Name() string { return Name }

// Open implements statebackend.Backend: a *State around a *memory.State.
func (b *Backend) Open(o statebackend.Options) (statebackend.KeyedState, error) {
	if o.Dir == "" {
		b.mu.Lock()
		b.mu.opened++
		o.Dir = filepath.Join(b.Root, fmt.Sprintf("state-%d", b.mu.opened))
		b.mu.Unlock()
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("empty directory of state: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of state: %w", err)
	}
	inner, err := memory.New().Open(o)
	if err != nil {
		return nil, err
	}
	s := &State{KeyedState: inner, backend: b, options: o}
	s.files.dir = o.Dir
	s.files.byBlock = map[int]*block{}
	s.files.origins = map[string]origin{}
	return s, nil
}

func (b *Backend) groupsPerFile() int {
	if b.GroupsPerFile > 0 {
		return b.GroupsPerFile
	}
	return 8
}

// State is the keyed state of one operator in one subtask.
type State struct {
	statebackend.KeyedState // what holds it
	backend                 *Backend
	options                 statebackend.Options
	files                   files
}

var _ statebackend.Wrapper = (*State)(nil)

// Unwrap implements statebackend.Wrapper.
func (s *State) Unwrap() statebackend.KeyedState { return s.KeyedState }

// files are those on disk. Views use them on other goroutines.
type files struct {
	mu      sync.Mutex
	dir     string
	last    int            // number of the file made last
	byBlock map[int]*block // the newest file of each block of key groups
	origins map[string]origin
	views   int // that are alive and in files
	closed  bool
}

// block is a file.
type block struct {
	local   string
	content []byte
	// views are those alive that have it; current says that it is in byBlock.
	views   int
	current bool
}

// origin is the restored file that a file of ours is.
type origin struct {
	part  int
	local string
}

// manifest is the content of the private file: a line with the number of
// groups in a file, and one for each file.
type manifest struct {
	groupsPerFile int
	blocks        []manifestBlock
}

type manifestBlock struct {
	block int
	file  string
	// lengths are the bytes of each key group of the block, from first on.
	first   keygroup.Group
	lengths []int64
}

func (m *manifest) encode() []byte {
	out := strconv.AppendInt(nil, int64(m.groupsPerFile), 10)
	for _, b := range m.blocks {
		out = fmt.Appendf(out, "\n%d %s %d", b.block, b.file, b.first)
		for _, n := range b.lengths {
			out = fmt.Appendf(out, " %d", n)
		}
	}
	return append(out, '\n')
}

func decodeManifest(content []byte) (*manifest, error) {
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	per, err := strconv.Atoi(lines[0])
	m := &manifest{groupsPerFile: per}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("%w: %s", statebackend.ErrCorrupt, manifestName)
		}
		b := manifestBlock{file: fields[1], lengths: make([]int64, len(fields)-3)}
		var first int
		b.block, err = strconv.Atoi(fields[0])
		if err == nil {
			first, err = strconv.Atoi(fields[2])
		}
		b.first = keygroup.Group(first)
		for i := range b.lengths {
			if err == nil {
				b.lengths[i], err = strconv.ParseInt(fields[i+3], 10, 64)
			}
		}
		m.blocks = append(m.blocks, b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", statebackend.ErrCorrupt, manifestName, err)
	}
	return m, nil
}

// Restore implements statebackend.KeyedState.
func (s *State) Restore(parts []statebackend.RestoredPart) error {
	canonical := make([]statebackend.RestoredPart, len(parts))
	for i := range parts {
		switch parts[i].Backend {
		case "":
			canonical[i] = parts[i]
			continue
		case Name:
		default:
			return fmt.Errorf("operator %q: the state is in files of state backend %q", s.options.Operator, parts[i].Backend)
		}
		m, err := readManifest(&parts[i])
		if err == nil {
			canonical[i], err = m.canonical(&parts[i])
		}
		if err == nil {
			err = s.adopt(m, &parts[i], len(parts) == 1)
		}
		if err != nil {
			return fmt.Errorf("operator %q: restore key groups %s from files: %w", s.options.Operator, parts[i].Range, err)
		}
	}
	return s.KeyedState.Restore(canonical)
}

func readManifest(p *statebackend.RestoredPart) (*manifest, error) {
	at := slices.IndexFunc(p.Files, func(f statebackend.File) bool { return f.Local == manifestName })
	if at < 0 {
		return nil, fmt.Errorf("%w: there is no file %s", statebackend.ErrCorrupt, manifestName)
	}
	content, err := os.ReadFile(p.Files[at].Path)
	if err != nil {
		return nil, err
	}
	return decodeManifest(content)
}

// canonical puts the bytes of the files together.
func (m *manifest) canonical(p *statebackend.RestoredPart) (statebackend.RestoredPart, error) {
	groups := make([][]byte, p.Range.Len())
	for _, b := range m.blocks {
		content, err := os.ReadFile(pathOf(p, b.file))
		if err != nil {
			return statebackend.RestoredPart{}, err
		}
		for i, n := range b.lengths {
			g := int(b.first) + i - int(p.Range.First)
			if n < 0 || n > int64(len(content)) || g < 0 || g >= len(groups) {
				return statebackend.RestoredPart{}, fmt.Errorf("%w: file %s does not fit %s", statebackend.ErrCorrupt, b.file, manifestName)
			}
			groups[g], content = content[:n], content[n:]
		}
	}
	out := statebackend.RestoredPart{Range: p.Range, States: p.States, Offsets: []int64{0}}
	for _, g := range groups {
		out.Data = append(out.Data, g...)
		out.Offsets = append(out.Offsets, int64(len(out.Data)))
	}
	return out, nil
}

func pathOf(p *statebackend.RestoredPart, local string) string {
	for i := range p.Files {
		if p.Files[i].Local == local {
			return p.Files[i].Path
		}
	}
	return local // which does not exist, and the error names
}

// adopt goes on using the files of which the state owns all key groups: under
// their own names if they are of the only part, else under new ones.
func (s *State) adopt(m *manifest, p *statebackend.RestoredPart, only bool) error {
	f := &s.files
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range m.blocks {
		var n int
		if _, err := fmt.Sscanf(b.file, nameForm, &n); err == nil && only {
			f.last = max(f.last, n)
		}
	}
	own := p.Range == s.options.Range
	for _, b := range m.blocks {
		last := b.first + keygroup.Group(len(b.lengths)) - 1
		first, end := s.blockRange(b.block)
		if m.groupsPerFile != s.backend.groupsPerFile() || b.first != first || last != end {
			continue
		}
		local := b.file
		if !only || !own {
			f.last++
			local = fmt.Sprintf(nameForm, f.last)
		}
		f.origins[local] = origin{part: p.Number, local: b.file}
		content, err := os.ReadFile(pathOf(p, b.file))
		if err != nil {
			return err
		}
		if err := os.Link(pathOf(p, b.file), filepath.Join(f.dir, local)); err != nil {
			return err
		}
		f.byBlock[b.block] = &block{local: local, content: content, current: true}
	}
	return nil
}

// nameForm is the form of the names of shared files.
const nameForm = "%06d.grp"

// blockRange is the key groups of a block that the state owns.
func (s *State) blockRange(n int) (first, last keygroup.Group) {
	per := s.backend.groupsPerFile()
	first = max(keygroup.Group(n*per), s.options.Range.First)
	return first, min(keygroup.Group(n*per+per-1), s.options.Range.Last)
}

// Freeze implements statebackend.KeyedState.
func (s *State) Freeze() (statebackend.Frozen, error) {
	f, err := s.KeyedState.Freeze()
	if err != nil {
		return nil, err
	}
	return &frozen{Frozen: f, state: s}, nil
}

// Close implements statebackend.KeyedState.
func (s *State) Close() error {
	err := s.KeyedState.Close()
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.closed = true
	return s.files.tidyLocked(err)
}

// tidyLocked removes the directory when nobody needs it any more.
func (f *files) tidyLocked(err error) error {
	if !f.closed || f.views > 0 {
		return err
	}
	if removeErr := os.RemoveAll(f.dir); err == nil {
		err = removeErr
	}
	return err
}

// frozen is a view: statebackend.FileFrozen.
type frozen struct {
	statebackend.Frozen
	state  *State
	blocks []*block
	inUse  bool // counted in files.views
}

var (
	_ statebackend.FileFrozen = (*frozen)(nil)
	_ statebackend.Origins    = (*frozen)(nil)
)

// Files implements statebackend.FileFrozen.
func (v *frozen) Files(ctx context.Context) (statebackend.FileSet, error) {
	var data bytes.Buffer
	offsets, states, err := v.WriteSnapshot(&data)
	if err != nil {
		return statebackend.FileSet{}, err
	}
	if err := ctx.Err(); err != nil {
		return statebackend.FileSet{}, err
	}
	f := &v.state.files
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed && f.views == 0 {
		// A view outlives its state, whose directory is gone with all files.
		clear(f.byBlock)
		if err := os.MkdirAll(f.dir, 0o700); err != nil {
			return statebackend.FileSet{}, err
		}
	}
	f.views++
	v.inUse = true
	set := statebackend.FileSet{States: states}
	m := manifest{groupsPerFile: v.state.backend.groupsPerFile()}
	r := v.state.options.Range
	for n := int(r.First) / m.groupsPerFile; n <= int(r.Last)/m.groupsPerFile; n++ {
		first, last := v.state.blockRange(n)
		from, to := offsets[first-r.First], offsets[last-r.First+1]
		if from == to {
			continue
		}
		b, err := v.blockLocked(n, data.Bytes()[from:to])
		if err != nil {
			return statebackend.FileSet{}, err
		}
		entry := manifestBlock{block: n, file: b.local, first: first}
		for g := first; g <= last; g++ {
			entry.lengths = append(entry.lengths, offsets[g-r.First+1]-offsets[g-r.First])
		}
		m.blocks = append(m.blocks, entry)
		set.Files = append(set.Files, statebackend.File{
			Local: b.local, Path: filepath.Join(f.dir, b.local), Size: to - from, Shared: true,
		})
	}
	content := m.encode()
	// What is not shared may change as soon as the view is released: the file is
	// overwritten in place, for those who linked it to notice.
	path := filepath.Join(f.dir, manifestName)
	if f.views > 1 {
		path = filepath.Join(f.dir, fmt.Sprintf("%s-%d", manifestName, f.last))
	}
	if err := v.writeFile(manifestName, path, content); err != nil {
		return statebackend.FileSet{}, err
	}
	set.Files = append(set.Files, statebackend.File{Local: manifestName, Path: path, Size: int64(len(content))})
	return set, nil
}

// blockLocked gives the file of a block with that content: the newest one if
// it has it, else a new one.
func (v *frozen) blockLocked(n int, content []byte) (*block, error) {
	f := &v.state.files
	b := f.byBlock[n]
	if b == nil || !bytes.Equal(b.content, content) {
		old := b
		f.last++
		b = &block{local: fmt.Sprintf(nameForm, f.last), content: bytes.Clone(content), current: true}
		if err := v.writeFile(b.local, filepath.Join(f.dir, b.local), content); err != nil {
			return nil, err
		}
		f.byBlock[n] = b
		if old != nil {
			old.current = false
			if err := f.dropLocked(old); err != nil {
				return nil, err
			}
		}
	}
	b.views++
	v.blocks = append(v.blocks, b)
	return b, nil
}

// writeFile writes a file.
func (v *frozen) writeFile(local, path string, content []byte) error {
	if before := v.state.backend.BeforeFile; before != nil {
		if err := before(string(v.state.options.Operator), local); err != nil {
			return &os.PathError{Op: "write", Path: path, Err: err}
		}
	}
	return os.WriteFile(path, content, 0o600)
}

// dropLocked removes a file that nothing has any more.
func (f *files) dropLocked(b *block) error {
	if b.current || b.views > 0 {
		return nil
	}
	delete(f.origins, b.local)
	return os.Remove(filepath.Join(f.dir, b.local))
}

// OriginOf implements statebackend.Origins.
func (v *frozen) OriginOf(local string) (part int, restored string, ok bool) {
	f := &v.state.files
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.origins[local]
	return o.part, o.local, ok
}

// Release implements statebackend.Frozen.
func (v *frozen) Release() {
	v.Frozen.Release()
	if !v.inUse {
		return
	}
	f := &v.state.files
	f.mu.Lock()
	defer f.mu.Unlock()
	v.inUse = false
	f.views--
	var err error
	for _, b := range v.blocks {
		b.views--
		if dropErr := f.dropLocked(b); err == nil {
			err = dropErr
		}
	}
	v.blocks = nil
	// A test's directory that cannot be tidied is gone with the test.
	_ = f.tidyLocked(err)
}

// Canonical turns files of this backend into a canonical part: what a program
// needs that restores them with another backend.
func Canonical(_ context.Context, p statebackend.RestoredPart, _ keygroup.Range, _ int) (statebackend.RestoredPart, error) {
	m, err := readManifest(&p)
	if err != nil {
		return statebackend.RestoredPart{}, err
	}
	return m.canonical(&p)
}
