package inspect

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// ErrNoState says that the checkpoint has no state of the name that was asked for.
var ErrNoState = errors.New("no such state")

// plainKinds are the kinds of state of which an entry is a key and a value.
// Entries of other kinds are shown as bytes.
var plainKinds = map[string]bool{"value": true, "reducing": true}

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

// entryForm shows the entries of one state.
type entryForm struct {
	key, value *schemaType // nil: shown as bytes
}

func newEntryForm(meta snapshot.StateMeta) entryForm {
	var f entryForm
	if !plainKinds[meta.Kind] {
		return f
	}
	// A schema that is not understood is one of another codec's making, or of
	// a newer version: what it describes is shown as bytes.
	if schema, ok := strings.CutPrefix(meta.KeySchema, keyEncoding); ok {
		f.key, _ = parseSchema(schema)
	}
	if meta.Codec == derivedCodec {
		f.value, _ = parseSchema(meta.Schema)
	}
	return f
}

func (f entryForm) line(key, value []byte) cliresult.DumpedEntry {
	var line cliresult.DumpedEntry
	var err error
	if f.key != nil {
		line.Key, err = decodeKey(f.key, key)
	}
	if f.key == nil || err != nil {
		line.Key, line.KeyHex = nil, hex.EncodeToString(key)
	}
	schemaID, flags, content, err := statebackend.ValueHeader(value)
	if err != nil {
		line.ValueHex = hex.EncodeToString(value)
		return line
	}
	if f.value != nil && schemaID == 0 && flags == 0 {
		line.Value, err = decodeValue(f.value, content)
	}
	if line.Value == nil || err != nil {
		line.Value, line.ValueHex = nil, hex.EncodeToString(value)
	}
	return line
}

func (s *Stored) dumpList(ctx context.Context, d *dumper, p piece) error {
	content, err := s.store.ReadState(ctx, s.base, p.list.Handle)
	if err != nil {
		return err
	}
	for i, length := range p.list.Elements {
		line := cliresult.DumpedElement{Subtask: p.subtask, Element: i, Hex: hex.EncodeToString(content[:length])}
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
