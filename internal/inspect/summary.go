package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Summary describes the checkpoint. It reads all keyed state to count entries;
// a file that is missing or broken is named in the summary and makes the
// counts of its states incomplete. The error is about a store that did not answer.
func (s *Stored) Summary(ctx context.Context) (*cliresult.Inspection, error) {
	c := s.checkpoint
	out := &cliresult.Inspection{
		Path: s.path, Kind: c.Kind.String(), ID: uint64(c.ID), Job: string(c.Job), JobName: c.JobName, Attempt: c.Attempt.String(),
		Triggered: timeOf(c.TriggeredAt), Completed: timeOf(c.CompletedAt), Bytes: c.Size(),
		Operators: []cliresult.InspectedOperator{}, Files: []cliresult.InspectedFile{}, Savepoints: []uint64{},
	}
	for _, id := range c.Savepoints {
		out.Savepoints = append(out.Savepoints, uint64(id))
	}
	out.InFlight = s.inFlight()
	counts := map[ids.OperatorUID]*keyedCounts{}
	for _, p := range s.pieces() {
		begin := len(out.Files)
		for _, h := range p.handles() {
			out.Files = append(out.Files, describe(p, h))
			if since := h.SharedSince; since == 0 || since == c.ID {
				out.OwnBytes += h.Size
			}
		}
		if p.keyed != nil {
			if counts[p.operator.UID] == nil {
				counts[p.operator.UID] = &keyedCounts{operator: p.operator}
			}
			if err := counts[p.operator.UID].add(ctx, s, p); err != nil {
				if isUnknown(ctx, err) {
					return nil, err
				}
				blame(out.Files[begin:], err)
			}
		}
	}
	for i := range c.Operators {
		op := s.operator(&c.Operators[i], counts[c.Operators[i].UID])
		if err := s.describeLists(ctx, &c.Operators[i], &op); err != nil {
			return nil, err
		}
		out.Operators = append(out.Operators, op)
	}
	for _, list := range c.Splits {
		if s.operatorState(list.UID) == nil {
			// A source that had no subtask yet: its splits are all there is of it.
			out.Operators = append(out.Operators, cliresult.InspectedOperator{
				UID: string(list.UID), States: []cliresult.InspectedState{}, Lists: []cliresult.InspectedList{}, Splits: splitsOf(list),
			})
		}
	}
	return out, nil
}

// blame notes what is wrong at the file that the error names, or at the first
// of those that cannot be read together.
func blame(files []cliresult.InspectedFile, err error) {
	at := 0
	if of := (*fileError)(nil); errors.As(err, &of) {
		at, err = slices.IndexFunc(files, func(f cliresult.InspectedFile) bool { return f.Name == of.file.Name }), of.err
	}
	if at >= 0 && at < len(files) {
		files[at].Problem = problemOf(err)
	}
}

func describe(p piece, h snapshot.StateHandle) cliresult.InspectedFile {
	file := cliresult.InspectedFile{
		Name: h.Name, Subtask: p.subtask, Bytes: h.Size,
		CRC32C: fmt.Sprintf("%08x", h.CRC32C), Shared: h.IsShared(), SharedSince: uint64(h.SharedSince),
	}
	if p.operator != nil {
		file.Operator = string(p.operator.UID)
	}
	switch {
	case p.list != nil:
		file.List = p.list.Name
	case p.inFlight != nil:
		file.InFlight = true
	default:
		file.Backend = p.keyed.Backend
	}
	return file
}

// inFlight describes the edges that records were in flight on, in the order of
// the graph.
func (s *Stored) inFlight() []cliresult.InspectedEdge {
	edges := make([]cliresult.InspectedEdge, len(s.checkpoint.Edges))
	for i, e := range s.checkpoint.Edges {
		edges[i] = cliresult.InspectedEdge{Edge: e.Name, Type: e.Type}
	}
	for _, in := range s.checkpoint.InFlight {
		for _, p := range in.Parts {
			e := &edges[p.Edge]
			e.Parts++
			if e.Bytes += p.Length; p.Output {
				e.ProducerBytes += p.Length
			}
		}
	}
	return slices.DeleteFunc(edges, func(e cliresult.InspectedEdge) bool { return e.Parts == 0 })
}

func (s *Stored) operatorState(uid ids.OperatorUID) *snapshot.OperatorState {
	for i := range s.checkpoint.Operators {
		if s.checkpoint.Operators[i].UID == uid {
			return &s.checkpoint.Operators[i]
		}
	}
	return nil
}

func (s *Stored) operator(op *snapshot.OperatorState, counts *keyedCounts) cliresult.InspectedOperator {
	out := cliresult.InspectedOperator{
		UID: string(op.UID), Parallelism: op.Parallelism, MaxParallelism: op.MaxParallelism,
		States: []cliresult.InspectedState{}, Lists: []cliresult.InspectedList{},
	}
	for _, ended := range s.checkpoint.EndOfData {
		if ended.UID == op.UID {
			out.Ended++
		}
	}
	places := map[string]int{}
	for _, subtask := range op.Subtasks {
		subtask.EachHandle(func(h snapshot.StateHandle) { out.Bytes += h.Size })
		for _, l := range subtask.Lists {
			at, known := places[l.Name]
			if !known {
				at = len(out.Lists)
				places[l.Name] = at
				out.Lists = append(out.Lists, cliresult.InspectedList{Name: l.Name, Redistribution: redistributionName(l.Redistribution)})
			}
			out.Lists[at].Elements += len(l.Elements)
			out.Lists[at].Bytes += l.Handle.Size
			if l.Name == operator.CommittablesList {
				out.PendingCommittables += len(l.Elements)
			}
		}
	}
	if counts != nil {
		out.States = counts.states()
	}
	for _, list := range s.checkpoint.Splits {
		if list.UID == op.UID {
			out.Splits = splitsOf(list)
		}
	}
	return out
}

func redistributionName(r snapshot.Redistribution) string {
	switch r {
	case snapshot.SplitEvenly:
		return "split-evenly"
	case snapshot.Union:
		return "union"
	case snapshot.ByIndex:
		return "by-index"
	}
	return "redistribution " + strconv.Itoa(int(r))
}

func splitsOf(list snapshot.SplitList) *cliresult.InspectedSplits {
	out := &cliresult.InspectedSplits{Complete: list.Complete, Splits: []cliresult.Split{}}
	for _, split := range list.Splits {
		out.Splits = append(out.Splits, describeSplit(split.Data))
	}
	return out
}

// describeSplit shows text as text: files and their ranges are, in the
// connectors that come with Weir.
func describeSplit(data []byte) cliresult.Split {
	text := string(data)
	if !utf8.ValidString(text) {
		return cliresult.Split{Hex: hex.EncodeToString(data)}
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return cliresult.Split{Hex: hex.EncodeToString(data)}
		}
	}
	return cliresult.Split{Text: text}
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// keyedCounts counts the entries of the keyed states of one operator.
type keyedCounts struct {
	operator *snapshot.OperatorState
	all      []*stateCount
}

// stateCount is of one state. Files that describe a state of that name
// differently, as they may after a change of the program, are counted apart.
type stateCount struct {
	meta     snapshot.StateMeta
	entries  int64
	bytes    int64
	subtasks []int64
	groups   map[keygroup.Group]int64
	complete bool
}

// add counts a piece. After an error what was counted of it stays.
func (k *keyedCounts) add(ctx context.Context, s *Stored, p piece) error {
	counts := make([]*stateCount, len(p.keyed.States))
	for i, meta := range p.keyed.States {
		counts[i] = k.of(meta)
	}
	err := s.eachEntry(ctx, p, func(g keygroup.Group, state int, key, value []byte) error {
		c := counts[state]
		c.entries++
		c.bytes += int64(len(key) + len(value))
		c.subtasks[p.subtask]++
		c.groups[g]++
		return nil
	})
	if err != nil {
		for _, c := range counts {
			c.complete = false
		}
	}
	return err
}

func (k *keyedCounts) of(meta snapshot.StateMeta) *stateCount {
	for _, c := range k.all {
		if c.meta.Equal(meta) {
			return c
		}
	}
	c := &stateCount{meta: meta, subtasks: make([]int64, len(k.operator.Subtasks)), groups: map[keygroup.Group]int64{}, complete: true}
	k.all = append(k.all, c)
	return c
}

func (k *keyedCounts) states() []cliresult.InspectedState {
	out := make([]cliresult.InspectedState, len(k.all))
	for i, c := range k.all {
		spread := cliresult.KeyGroupSpread{Used: len(c.groups), Mean: float64(c.entries) / float64(k.operator.MaxParallelism)}
		for g := range k.operator.MaxParallelism {
			if n := c.groups[keygroup.Group(g)]; n > spread.Most {
				spread.Most, spread.Largest = n, g
			}
		}
		out[i] = cliresult.InspectedState{
			Name: c.meta.Name, Kind: c.meta.Kind, Codec: c.meta.Codec, Schema: c.meta.Schema, KeySchema: c.meta.KeySchema,
			Entries: c.entries, Bytes: c.bytes, SubtaskEntries: c.subtasks, KeyGroups: spread, Complete: c.complete,
		}
		for _, e := range c.meta.Earlier {
			out[i].Earlier = append(out[i].Earlier, cliresult.StoredSchema{ID: e.ID, Codec: e.Codec, Schema: e.Schema})
		}
	}
	return out
}
