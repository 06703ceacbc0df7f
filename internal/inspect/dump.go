package inspect

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// ErrNoState says that the checkpoint has no state of the name that was asked for.
var ErrNoState = errors.New("no such state")

// The names under which the derived codec and the key encoding are stored.
const (
	derivedCodec = "weir/1"
	keyEncoding  = "key/1:"
)

// Dump writes the entries of one state as JSON lines: of a keyed state, or of
// a list of operator state. target is UID/STATE. The lines are good only if
// the error is nil: a file is compared with its checksum at its end.
func (s *Stored) Dump(ctx context.Context, target string, to io.Writer) error {
	uid, name, ok := strings.Cut(target, "/")
	if !ok {
		return fmt.Errorf("%w: %q is not of the form UID/STATE", ErrNoState, target)
	}
	buffered := bufio.NewWriter(to)
	d := dumper{lines: json.NewEncoder(buffered)}
	d.lines.SetEscapeHTML(false)
	found := false
	for _, p := range s.pieces() {
		if p.operator.UID != ids.OperatorUID(uid) {
			continue
		}
		var err error
		switch {
		case p.list != nil && p.list.Name == name:
			found = true
			err = s.dumpList(ctx, &d, p)
		case p.keyed != nil:
			has := false
			has, err = s.dumpKeyed(ctx, &d, p, name)
			found = found || has
		}
		if err != nil {
			return errors.Join(fmt.Errorf("state %s of operator %s, subtask %d: %w", name, uid, p.subtask, err), buffered.Flush())
		}
	}
	if !found {
		return fmt.Errorf("%w: operator %q has %s", ErrNoState, uid, s.stateNames(ids.OperatorUID(uid)))
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	return nil
}

// stateNames lists what can be dumped of an operator.
func (s *Stored) stateNames(uid ids.OperatorUID) string {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, p := range s.pieces() {
		if p.operator.UID != uid {
			continue
		}
		if p.list != nil {
			add(p.list.Name)
			continue
		}
		for _, meta := range p.keyed.States {
			add(meta.Name)
		}
	}
	if len(names) == 0 {
		return "no state"
	}
	return "the states " + strings.Join(names, ", ")
}

type dumper struct{ lines *json.Encoder }

func (d *dumper) write(line any) error {
	if err := d.lines.Encode(line); err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	return nil
}

// dumpKeyed writes the entries of a state in one piece, and says whether the
// piece has a state of that name.
func (s *Stored) dumpKeyed(ctx context.Context, d *dumper, p piece, name string) (bool, error) {
	number := -1
	for i, meta := range p.keyed.States {
		if meta.Name == name {
			number = i
		}
	}
	if number < 0 {
		return false, nil
	}
	show := newEntryForm(p.keyed.States[number])
	return true, s.eachEntry(ctx, p.keyed, func(g keygroup.Group, state int, key, value []byte) error {
		if state != number {
			return nil
		}
		line := show.line(key, value)
		line.Subtask, line.KeyGroup = p.subtask, int(g)
		return d.write(line)
	})
}

// valueForm reads a value from the start of src, appends its JSON to dst and
// returns what is behind it.
type valueForm func(dst, src []byte) (out, rest []byte, err error)

// formOf is nil for a schema that is not understood: one of another codec's
// making, or of a newer version. What it describes is shown as bytes.
func formOf(codec, schema string) valueForm {
	switch codec {
	case derivedCodec:
		if t, err := parseSchema(schema); err == nil {
			return func(dst, src []byte) ([]byte, []byte, error) {
				r := valueReader{src: src}
				out, err := r.value(dst, t)
				return out, r.src, err
			}
		}
	case avro.Name:
		if t, err := avro.ParseSchema(schema); err == nil {
			return func(dst, src []byte) ([]byte, []byte, error) {
				r := avroReader{src: src}
				out, err := r.value(dst, t)
				return out, r.src, err
			}
		}
	}
	return nil
}

// entryForm shows the entries of one state.
type entryForm struct {
	kind   string
	key    *schemaType          // nil: shown as bytes
	values map[uint64]valueForm // by schema ID; nil: shown as bytes
}

func newEntryForm(meta snapshot.StateMeta) entryForm {
	f := entryForm{kind: meta.Kind, values: map[uint64]valueForm{meta.SchemaID: formOf(meta.Codec, meta.Schema)}}
	if schema, ok := strings.CutPrefix(meta.KeySchema, keyEncoding); ok {
		f.key, _ = parseSchema(schema)
	}
	for _, e := range meta.Earlier {
		f.values[e.ID] = formOf(e.Codec, e.Schema)
	}
	return f
}

func (f entryForm) line(key, value []byte) cliresult.DumpedEntry {
	var line cliresult.DumpedEntry
	if f.key == nil || !f.splitKey(&line, key) {
		line.Key, line.UserKey, line.KeyHex = nil, nil, hex.EncodeToString(key)
	}
	schemaID, flags, content, err := statebackend.ValueHeader(value)
	if err == nil {
		if form := f.values[schemaID]; form != nil {
			line.Value, err = f.value(&line, form, flags, content)
		}
	}
	if line.Value == nil || err != nil {
		line.Value, line.WrittenMillis, line.AgeMillis, line.ValueHex = nil, nil, nil, hex.EncodeToString(value)
	}
	return line
}

// splitKey shows the key, of a map apart from the user's. It says false if it
// cannot be read.
func (f entryForm) splitKey(line *cliresult.DumpedEntry, key []byte) bool {
	var err error
	if f.kind != string(statebackend.MapKind) || f.key.form != structForm || len(f.key.fields) != 2 {
		line.Key, err = decodeKey(f.key, key)
		return err == nil
	}
	r := keyReader{src: key}
	if line.Key, err = r.part(nil, f.key.fields[0].typ); err != nil {
		return false
	}
	line.UserKey, err = r.part(nil, f.key.fields[1].typ)
	return err == nil && len(r.src) == 0
}

// value shows a stored value behind its header. The time of a value with
// time-to-live goes to line; the elements of a list have their own.
func (f entryForm) value(line *cliresult.DumpedEntry, form valueForm, flags byte, src []byte) ([]byte, error) {
	if f.kind == string(statebackend.ListKind) {
		return listValue(form, flags, src)
	}
	at, src, err := statebackend.CutTime(src, flags)
	if err != nil {
		return nil, err
	}
	switch {
	case flags&statebackend.TimeFlag != 0:
		line.WrittenMillis = &at
	case flags&statebackend.AgeFlag != 0:
		line.AgeMillis = &at
	}
	out, rest, err := form(nil, src)
	if err == nil && len(rest) > 0 {
		err = malformed("%d bytes follow the value", len(rest))
	}
	return out, err
}

// listValue shows a list: of values, or of values with their times.
func listValue(form valueForm, flags byte, src []byte) ([]byte, error) {
	n, used := binary.Uvarint(src)
	if used <= 0 {
		return nil, malformed("a list without length")
	}
	src = src[used:]
	name := map[byte]string{statebackend.TimeFlag: "written_ms", statebackend.AgeFlag: "age_ms"}[flags]
	dst := []byte{'['}
	for i := range n {
		if len(src) == 0 {
			return nil, malformed("%d elements of %d", i, n)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		at, rest, err := statebackend.CutTime(src, flags)
		if err != nil {
			return nil, err
		}
		if name != "" {
			dst = fmt.Appendf(dst, `{"%s":%d,"value":`, name, at)
		}
		if dst, src, err = form(dst, rest); err != nil {
			return nil, err
		}
		if name != "" {
			dst = append(dst, '}')
		}
	}
	if len(src) > 0 {
		return nil, malformed("%d bytes follow the list", len(src))
	}
	return append(dst, ']'), nil
}

func (s *Stored) dumpList(ctx context.Context, d *dumper, p piece) error {
	content, err := s.store.ReadState(ctx, s.base, p.list.Handle)
	if err != nil {
		return err
	}
	form, err := s.listForm(ctx, p)
	if err != nil {
		return err
	}
	for i, length := range p.list.Elements {
		line := cliresult.DumpedElement{Subtask: p.subtask, Element: i, Hex: hex.EncodeToString(content[:length])}
		if form != nil {
			if value, rest, err := form(nil, content[:length]); err == nil && len(rest) == 0 {
				line.Value, line.Hex = value, ""
			}
		}
		if p.list.Redistribution == snapshot.ByIndex {
			line.Index = &p.list.Indexes[i]
		}
		content = content[length:]
		if err := d.write(line); err != nil {
			return err
		}
	}
	return nil
}

// listForm is how the elements of a list that a program registered are read;
// nil if it is another.
func (s *Stored) listForm(ctx context.Context, p piece) (valueForm, error) {
	for _, l := range p.operator.Subtasks[p.subtask].Lists {
		if l.Name != state.DescriptionsList {
			continue
		}
		content, err := s.store.ReadState(ctx, s.base, l.Handle)
		if err != nil {
			return nil, err
		}
		for _, length := range l.Elements {
			d, err := state.DescribeList(content[:length])
			if err != nil {
				return nil, err
			}
			if content = content[length:]; d.StoredAs == p.list.Name {
				return formOf(d.Codec, d.Schema), nil
			}
		}
	}
	return nil, nil
}
