package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Restore implements statebackend.KeyedState. Parts in files that number their
// states and schemas alike are linked or taken in as files. Others, and
// canonical ones, are written into sorted files entry by entry.
func (s *State) Restore(parts []statebackend.RestoredPart) error {
	if s.restored || s.closed {
		return fmt.Errorf("operator %q: keyed state was restored or closed before", s.options.Operator)
	}
	s.restored = true
	if err := s.restore(parts); err != nil {
		err = fmt.Errorf("operator %q: restore keyed state: %w", s.options.Operator, err)
		if s.store != nil {
			err = errors.Join(err, s.store.close())
			s.closed = true
			s.backend.columns.Add(-int64(len(s.columns)))
		}
		return err
	}
	return nil
}

func (s *State) restore(parts []statebackend.RestoredPart) error {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b statebackend.RestoredPart) int { return cmp.Compare(a.Range.First, b.Range.First) })
	options := s.backend.lsmOptions()
	seen := make([]bool, s.options.Range.Len())
	var native []nativePart // that are used as they are
	var others []*statebackend.RestoredPart
	for i := range parts {
		p := &parts[i]
		if err := s.match(p.States); err != nil {
			return err
		}
		if p.Range.First > p.Range.Last {
			return fmt.Errorf("%w: key groups %s", statebackend.ErrCorrupt, p.Range)
		}
		common, ok := p.Range.Intersect(s.options.Range)
		if !ok {
			continue
		}
		for g := common.First; g <= common.Last; g++ {
			at := &seen[g-s.options.Range.First]
			if *at {
				return fmt.Errorf("%w: key group %d is in two parts", statebackend.ErrCorrupt, g)
			}
			*at = true
		}
		switch {
		case p.Backend == "":
			others = append(others, p)
		case p.Backend != Name:
			return fmt.Errorf("key groups %s are in files of state backend %q, which this one cannot read: restore from a savepoint", p.Range, p.Backend)
		default:
			files, clock, err := splitClock(options, *p)
			if err != nil {
				return err
			}
			// Of some the times have to move, others have entries that must not stay.
			rewritten := slices.Contains(clock.keepsAge, true) || slices.ContainsFunc(p.States, isDropped) ||
				len(native) > 0 && !slices.EqualFunc(native[0].states, p.States, snapshot.StateMeta.Equal)
			if rewritten {
				others = append(others, p)
			} else {
				native = append(native, nativePart{number: p.Number, states: p.States, files: files})
			}
		}
	}
	var first []snapshot.StateMeta
	if len(native) > 0 {
		first = native[0].states
	}
	if err := s.plan(first); err != nil {
		return err
	}
	if err := s.open(options, native); err != nil {
		return err
	}
	for _, p := range others {
		if err := s.importPart(p); err != nil {
			return fmt.Errorf("key groups %s from a snapshot of %s: %w", s.options.Range, p.Range, err)
		}
	}
	return nil
}

// nativePart is a part in files that the database takes over.
type nativePart struct {
	number int // the caller's
	states []snapshot.StateMeta
	files  filePart
}

// isDropped says that what is stored of a state is to be skipped.
func isDropped(m snapshot.StateMeta) bool { return m.Kind == snapshot.DroppedKind }

// match checks that all stored states are registered, and for the same kind of thing.
func (s *State) match(stored []snapshot.StateMeta) error {
	var unknown []string
	for i, m := range stored {
		if isDropped(m) {
			continue
		}
		at := s.find(m.Name)
		if at < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", m.Name))
			continue
		}
		if err := statebackend.CheckMeta(m, s.columns[at].meta()); err != nil {
			return err
		}
		if slices.ContainsFunc(stored[:i], func(o snapshot.StateMeta) bool { return o.Name == m.Name && !isDropped(o) }) {
			return fmt.Errorf("%w: state %q is listed twice", statebackend.ErrCorrupt, m.Name)
		}
	}
	if unknown != nil {
		return fmt.Errorf("the snapshot has state %s, which the operator did not register when it was opened", strings.Join(unknown, ", "))
	}
	return nil
}

// plan numbers the states: those of files keep the numbers in their keys.
func (s *State) plan(stored []snapshot.StateMeta) error {
	next := 0
	for _, m := range stored {
		if err := s.columns[s.find(m.Name)].plan(next, m); err != nil {
			return err
		}
		next++
	}
	for _, c := range s.columns {
		m := c.meta()
		if slices.ContainsFunc(stored, func(o snapshot.StateMeta) bool { return o.Name == m.Name }) {
			continue
		}
		if err := c.plan(next, m); err != nil {
			return err
		}
		next++
	}
	return nil
}

// open opens the database, with the parts that it takes over.
func (s *State) open(options *lsm.Options, native []nativePart) error {
	dir := options.FS.PathJoin(s.options.Dir, "db")
	var db *lsm.DB
	var err error
	origins := map[string]fileOrigin{}
	if len(native) == 0 {
		db, err = lsm.Open(dir, options)
	} else {
		var files []filePart
		for _, p := range native {
			files = append(files, p.files)
		}
		if err = options.FS.MkdirAll(dir, 0o700); err == nil {
			var of map[string]fileOrigin
			db, of, err = openFiles(dir, options, files, s.options.Range)
			for local, o := range of {
				origins[local] = fileOrigin{Part: native[o.Part].number, Local: o.Local}
			}
		}
	}
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	s.store = &store{backend: s.backend, db: db, options: options, dir: s.options.Dir, columns: map[int]column{}, origins: origins, level0: level0Of(db), valueMax: s.backend.options.ValueBytesMax, users: 1}
	s.store.changed.L = &s.store.mu
	s.store.closeAll = func() error {
		return errors.Join(db.Close(), options.FS.RemoveAll(s.options.Dir))
	}
	for _, c := range s.columns {
		number, _ := c.stored()
		s.store.columns[number] = c
	}
	return nil
}

// importPart writes the entries of a part into the database.
func (s *State) importPart(p *statebackend.RestoredPart) error {
	var clock clockRead
	var part filePart
	if p.Backend != "" {
		var err error
		if part, clock, err = splitClock(s.store.options, *p); err != nil {
			return err
		}
	}
	im := &importing{state: s, out: newTables(s.store), columns: make([]column, len(p.States)), importers: make([]importer, len(p.States))}
	sorted, last := true, -1
	for i, m := range p.States {
		if isDropped(m) {
			continue
		}
		c := s.columns[s.find(m.Name)]
		shift := int64(0)
		if clock.keepsAge != nil && clock.keepsAge[i] {
			shift = c.now() - clock.now
		}
		r, err := c.reader(m, c.now(), shift)
		if err != nil {
			return err
		}
		number, _ := c.stored()
		sorted = sorted && number > last
		last = number
		im.columns[i], im.importers[i] = c, r
	}
	var err error
	if p.Backend == "" {
		err = p.Groups(s.options.Range, func(g keygroup.Group, data []byte) error {
			if err := im.group(g, data, sorted); err != nil {
				return fmt.Errorf("key group %d: %w", g, err)
			}
			return nil
		})
	} else {
		err = im.files(p.Range, part)
	}
	if err != nil {
		im.out.abandon()
		return err
	}
	return im.out.ingest()
}

// importing is the import of one part.
type importing struct {
	state     *State
	out       *tables
	columns   []column   // by the numbers of the part; nil for those that are dropped
	importers []importer // likewise
	key       []byte
	value     []byte
	last      []byte
}

// group imports a canonical key group. If the states come in another order
// than the database's, each is passed over by itself.
func (im *importing) group(g keygroup.Group, data []byte, sorted bool) error {
	if sorted {
		return statebackend.ReadGroup(data, len(im.columns), func(state int, key, value []byte) error {
			return im.entry(g, state, key, value)
		})
	}
	for _, wanted := range im.order() {
		err := statebackend.ReadGroup(data, len(im.columns), func(state int, key, value []byte) error {
			if state != wanted {
				return nil
			}
			return im.entry(g, state, key, value)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// order are the states of the part that are not dropped, as the database has them.
func (im *importing) order() []int {
	var order []int
	for i, c := range im.columns {
		if c != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(im.number(a), im.number(b)) })
	return order
}

func (im *importing) number(state int) int {
	n, _ := im.columns[state].stored()
	return n
}

// entry imports one entry; they come in the order of the database's keys.
func (im *importing) entry(g keygroup.Group, state int, key, value []byte) error {
	c := im.columns[state]
	if c == nil {
		return nil
	}
	name := c.meta().Name
	if err := c.checkKey(key, g, im.state.options.MaxParallelism); err != nil {
		return fmt.Errorf("state %q: %w", name, err)
	}
	im.key = append(appendPrefix(im.key[:0], g, im.number(state)), key...)
	if im.last != nil && string(im.key) <= string(im.last) {
		return fmt.Errorf("%w: state %q: key %x is stored twice or out of order", statebackend.ErrCorrupt, name, key)
	}
	im.last = append(im.last[:0], im.key...)
	var err error
	if im.value, err = im.importers[state].convert(im.value[:0], value); err != nil {
		return fmt.Errorf("state %q: value of key %x: %w", name, key, err)
	}
	return im.out.set(im.key, im.value)
}

// files imports a part in files, through a database of its own.
func (im *importing) files(stored keygroup.Range, part filePart) (err error) {
	options := im.state.backend.lsmOptions()
	dir := options.FS.PathJoin(im.state.options.Dir, fmt.Sprintf("import-%d", stored.First))
	if err := options.FS.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	db, _, err := openFiles(dir, options, []filePart{part}, stored)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(), options.FS.RemoveAll(dir)) }()
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	common, _ := stored.Intersect(im.state.options.Range)
	order := im.order()
	for g := int(common.First); g <= int(common.Last); g++ {
		for _, state := range order {
			prefix := appendPrefix(nil, keygroup.Group(g), state)
			end := behind(prefix)
			for ok := it.SeekGE(prefix); ok && (end == nil || string(it.Key()) < string(end)); ok = it.Next() {
				value, err := it.ValueAndErr()
				if err != nil {
					return err
				}
				if err := im.entry(keygroup.Group(g), state, it.Key()[prefixBytes:], value); err != nil {
					return err
				}
			}
		}
	}
	return it.Error()
}
