package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/pb"
)

// The values of this package travel in acknowledgements and deployments and
// are stored in metadata. ToProto never fails. The …FromProto functions refuse
// what no ToProto of a sound value could have made, so that the code behind
// them may rely on sizes and offsets; they allocate in proportion to the
// message they are given. A zero value and an absent message are told apart
// only where the absence would be a mistake.

// handleNameLengthMax is what an S3 server allows for a whole object name.
const handleNameLengthMax = 1024

// AttemptToProto converts an attempt.
func AttemptToProto(a ids.AttemptID) *pb.AttemptID {
	return &pb.AttemptID{Token: uint64(a.Token), Number: a.Number}
}

// AttemptFromProto converts an attempt; an absent message is the zero attempt.
func AttemptFromProto(p *pb.AttemptID) ids.AttemptID {
	return ids.AttemptID{Token: ids.FencingToken(p.GetToken()), Number: p.GetNumber()}
}

// SubtaskToProto converts the name of a subtask.
func SubtaskToProto(s ids.SubtaskID) *pb.SubtaskID {
	return &pb.SubtaskID{Vertex: int32(s.Vertex), Index: s.Index}
}

// SubtaskFromProto converts the name of a subtask and refuses negative parts.
func SubtaskFromProto(p *pb.SubtaskID) (ids.SubtaskID, error) {
	if p == nil {
		return ids.SubtaskID{}, errors.New("subtask is missing")
	}
	if p.GetVertex() < 0 || p.GetIndex() < 0 {
		return ids.SubtaskID{}, fmt.Errorf("subtask %d/%d is negative", p.GetVertex(), p.GetIndex())
	}
	return ids.SubtaskID{Vertex: ids.VertexID(p.GetVertex()), Index: p.GetIndex()}, nil
}

// ToProto converts the handle. The inline bytes are shared, not copied.
func (h StateHandle) ToProto() *pb.StateHandle {
	return &pb.StateHandle{Name: h.Name, Size: h.Size, Crc32C: h.CRC32C, Inline: h.Inline, SharedSince: uint64(h.SharedSince)}
}

// StateHandleFromProto converts and checks a handle. The inline bytes are
// shared, not copied.
func StateHandleFromProto(p *pb.StateHandle) (StateHandle, error) {
	if p == nil {
		return StateHandle{}, errors.New("state handle is missing")
	}
	h := StateHandle{Name: p.GetName(), Size: p.GetSize(), CRC32C: p.GetCrc32C(), SharedSince: ids.CheckpointID(p.GetSharedSince())}
	if len(p.GetInline()) > 0 {
		h.Inline = p.GetInline()
	}
	if h.IsInline() {
		if h.Size != int64(len(h.Inline)) {
			return StateHandle{}, fmt.Errorf("inline state handle has %d bytes but says %d", len(h.Inline), h.Size)
		}
		if h.IsShared() {
			return StateHandle{}, errors.New("inline state handle says that it is shared")
		}
		return h, nil
	}
	if err := validateHandleName(h.Name); err != nil {
		return StateHandle{}, err
	}
	if h.Size < 0 {
		return StateHandle{}, fmt.Errorf("state handle %s has size %d", h.Name, h.Size)
	}
	if len(h.Inline) > 0 {
		return StateHandle{}, fmt.Errorf("state handle %s has a name and inline bytes", h.Name)
	}
	return h, nil
}

// validateHandleName refuses names that would leave the base they are
// relative to: a forged handle must not read or delete other files.
func validateHandleName(name string) error {
	if len(name) > handleNameLengthMax {
		return fmt.Errorf("state handle %.40q… has a name of %d bytes: at most %d are allowed", name, len(name), handleNameLengthMax)
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element[0] == '.' {
			return fmt.Errorf("state handle %q is not a clean relative name", name)
		}
	}
	return nil
}

// ToProto converts the description of a state.
func (m StateMeta) ToProto() *pb.StateMeta {
	return &pb.StateMeta{
		Name: m.Name, Kind: m.Kind, Codec: m.Codec, Schema: m.Schema, KeySchema: m.KeySchema,
		SchemaId: m.SchemaID, Earlier: mapSlice(m.Earlier, StoredSchema.ToProto),
	}
}

// StateMetaFromProto converts the description of a state, which has a name.
func StateMetaFromProto(p *pb.StateMeta) (StateMeta, error) {
	if p.GetName() == "" {
		return StateMeta{}, errors.New("state has no name")
	}
	m := StateMeta{
		Name: p.GetName(), Kind: p.GetKind(), Codec: p.GetCodec(), Schema: p.GetSchema(), KeySchema: p.GetKeySchema(),
		SchemaID: p.GetSchemaId(),
	}
	for i, e := range p.GetEarlier() {
		if e.GetId() == m.SchemaID || i > 0 && e.GetId() <= m.Earlier[i-1].ID {
			return StateMeta{}, fmt.Errorf("state %q has schema ID %d twice, or out of order", m.Name, e.GetId())
		}
		m.Earlier = append(m.Earlier, StoredSchema{ID: e.GetId(), Codec: e.GetCodec(), Schema: e.GetSchema()})
	}
	return m, nil
}

// ToProto converts the schema.
func (s StoredSchema) ToProto() *pb.StoredSchema {
	return &pb.StoredSchema{Id: s.ID, Codec: s.Codec, Schema: s.Schema}
}

// ToProto converts the file.
func (f StateFile) ToProto() *pb.StateFile {
	return &pb.StateFile{Local: f.Local, Handle: f.Handle.ToProto()}
}

// stateFilesFromProto converts and checks the files of keyed state.
func stateFilesFromProto(p []*pb.StateFile) ([]StateFile, error) {
	if len(p) == 0 {
		return nil, nil
	}
	files := make([]StateFile, len(p))
	seen := make(map[string]bool, len(p))
	for i, f := range p {
		if err := validateHandleName(f.GetLocal()); err != nil || strings.Contains(f.GetLocal(), "/") {
			return nil, fmt.Errorf("file %q is not a clean name", f.GetLocal())
		}
		if seen[f.GetLocal()] {
			return nil, fmt.Errorf("file %q is listed twice", f.GetLocal())
		}
		seen[f.GetLocal()] = true
		handle, err := StateHandleFromProto(f.GetHandle())
		if err != nil {
			return nil, fmt.Errorf("file %q: %w", f.GetLocal(), err)
		}
		files[i] = StateFile{Local: f.GetLocal(), Handle: handle}
	}
	return files, nil
}

// ToProto converts the handle.
func (k KeyedStateHandle) ToProto() *pb.KeyedStateHandle {
	p := &pb.KeyedStateHandle{
		FirstGroup: uint32(k.Range.First),
		LastGroup:  uint32(k.Range.Last),
		Offsets:    k.Offsets,
		States:     mapSlice(k.States, StateMeta.ToProto),
		Backend:    k.Backend,
		Files:      mapSlice(k.Files, StateFile.ToProto),
	}
	if !k.IsInFiles() {
		p.Handle = k.Handle.ToProto()
	}
	return p
}

// KeyedStateHandleFromProto converts a handle and checks that its offsets
// match its range and stay inside its bytes.
func KeyedStateHandleFromProto(p *pb.KeyedStateHandle) (KeyedStateHandle, error) {
	fail := func(err error) (KeyedStateHandle, error) {
		return KeyedStateHandle{}, fmt.Errorf("keyed state of groups %d-%d: %w", p.GetFirstGroup(), p.GetLastGroup(), err)
	}
	if p == nil {
		return KeyedStateHandle{}, errors.New("keyed state handle is missing")
	}
	if p.GetFirstGroup() > p.GetLastGroup() || p.GetLastGroup() >= keygroup.MaxParallelismLimit {
		return fail(fmt.Errorf("not a range of groups below %d", keygroup.MaxParallelismLimit))
	}
	if p.GetBackend() != "" {
		return keyedFilesFromProto(p, fail)
	}
	handle, err := StateHandleFromProto(p.GetHandle())
	if err != nil {
		return fail(err)
	}
	k := KeyedStateHandle{
		Handle:  handle,
		Range:   keygroup.Range{First: keygroup.Group(p.GetFirstGroup()), Last: keygroup.Group(p.GetLastGroup())},
		Offsets: p.GetOffsets(),
	}
	if len(k.Offsets) != k.Range.Len()+1 {
		return fail(fmt.Errorf("has %d offsets, want %d", len(k.Offsets), k.Range.Len()+1))
	}
	previous := int64(0)
	for i, offset := range k.Offsets {
		if offset < previous {
			return fail(fmt.Errorf("offset %d is %d, after %d", i, offset, previous))
		}
		previous = offset
	}
	if previous > handle.Size {
		return fail(fmt.Errorf("offsets end at %d of %d bytes", previous, handle.Size))
	}
	if k.States, err = mapSliceErr(p.GetStates(), StateMetaFromProto); err != nil {
		return fail(err)
	}
	return k, nil
}

// keyedFilesFromProto converts keyed state in files.
func keyedFilesFromProto(p *pb.KeyedStateHandle, fail func(error) (KeyedStateHandle, error)) (KeyedStateHandle, error) {
	if p.GetHandle() != nil || len(p.GetOffsets()) > 0 {
		return fail(fmt.Errorf("has files of backend %q and canonical bytes", p.GetBackend()))
	}
	k := KeyedStateHandle{
		Range:   keygroup.Range{First: keygroup.Group(p.GetFirstGroup()), Last: keygroup.Group(p.GetLastGroup())},
		Backend: p.GetBackend(),
	}
	var err error
	if k.Files, err = stateFilesFromProto(p.GetFiles()); err != nil {
		return fail(err)
	}
	if k.States, err = mapSliceErr(p.GetStates(), StateMetaFromProto); err != nil {
		return fail(err)
	}
	return k, nil
}

// ToProto converts the handle.
func (l OperatorStateHandle) ToProto() *pb.OperatorStateHandle {
	return &pb.OperatorStateHandle{
		Name:           l.Name,
		Redistribution: l.Redistribution.toProto(),
		Handle:         l.Handle.ToProto(),
		Elements:       l.Elements,
		Indexes:        l.Indexes,
		Selected:       l.Selected,
		States:         mapSlice(l.States, StateMeta.ToProto),
	}
}

// OperatorStateHandleFromProto converts a handle and checks that its elements
// fit into its bytes.
func OperatorStateHandleFromProto(p *pb.OperatorStateHandle) (OperatorStateHandle, error) {
	fail := func(err error) (OperatorStateHandle, error) {
		return OperatorStateHandle{}, fmt.Errorf("operator state %q: %w", p.GetName(), err)
	}
	if p.GetName() == "" {
		return OperatorStateHandle{}, errors.New("operator state has no name")
	}
	redistribution, err := redistributionFromProto(p.GetRedistribution())
	if err != nil {
		return fail(err)
	}
	handle, err := StateHandleFromProto(p.GetHandle())
	if err != nil {
		return fail(err)
	}
	rest := handle.Size
	for i, length := range p.GetElements() {
		if length < 0 || length > rest {
			return fail(fmt.Errorf("element %d has length %d, with %d bytes left of %d", i, length, rest, handle.Size))
		}
		rest -= length
	}
	indexesWanted := 0
	if redistribution == ByIndex {
		indexesWanted = len(p.GetElements())
	}
	if len(p.GetIndexes()) != indexesWanted {
		return fail(fmt.Errorf("has %d indexes, want %d", len(p.GetIndexes()), indexesWanted))
	}
	for i, index := range p.GetIndexes() {
		if index < 0 {
			return fail(fmt.Errorf("index %d is %d", i, index))
		}
	}
	after := int32(-1)
	for _, e := range p.GetSelected() {
		if e <= after || int(e) >= len(p.GetElements()) {
			return fail(fmt.Errorf("selects element %d after %d of %d", e, after, len(p.GetElements())))
		}
		after = e
	}
	states, err := mapSliceErr(p.GetStates(), StateMetaFromProto)
	if err != nil {
		return fail(err)
	}
	return OperatorStateHandle{
		Name: p.GetName(), Redistribution: redistribution, Handle: handle,
		Elements: p.GetElements(), Indexes: p.GetIndexes(), Selected: p.GetSelected(), States: states,
	}, nil
}

func (r Redistribution) toProto() pb.Redistribution {
	switch r {
	case SplitEvenly:
		return pb.Redistribution_REDISTRIBUTION_SPLIT_EVENLY
	case Union:
		return pb.Redistribution_REDISTRIBUTION_UNION
	case ByIndex:
		return pb.Redistribution_REDISTRIBUTION_BY_INDEX
	}
	return pb.Redistribution_REDISTRIBUTION_UNSPECIFIED
}

func redistributionFromProto(p pb.Redistribution) (Redistribution, error) {
	switch p {
	case pb.Redistribution_REDISTRIBUTION_SPLIT_EVENLY:
		return SplitEvenly, nil
	case pb.Redistribution_REDISTRIBUTION_UNION:
		return Union, nil
	case pb.Redistribution_REDISTRIBUTION_BY_INDEX:
		return ByIndex, nil
	case pb.Redistribution_REDISTRIBUTION_UNSPECIFIED:
	}
	return 0, fmt.Errorf("redistribution %d is unknown", p)
}

// ToProto converts the snapshot of one operator in one subtask.
func (s OperatorSubtaskState) ToProto() *pb.OperatorSubtaskState {
	return &pb.OperatorSubtaskState{
		Uid:   string(s.UID),
		Keyed: mapSlice(s.Keyed, KeyedStateHandle.ToProto),
		Lists: mapSlice(s.Lists, OperatorStateHandle.ToProto),
	}
}

// OperatorSubtaskStateFromProto converts and checks the snapshot of one
// operator in one subtask.
func OperatorSubtaskStateFromProto(p *pb.OperatorSubtaskState) (OperatorSubtaskState, error) {
	s := OperatorSubtaskState{UID: ids.OperatorUID(p.GetUid())}
	err := s.UID.Validate()
	if err != nil {
		return OperatorSubtaskState{}, err
	}
	if s.Keyed, err = mapSliceErr(p.GetKeyed(), KeyedStateHandleFromProto); err != nil {
		return OperatorSubtaskState{}, fmt.Errorf("operator %s: %w", s.UID, err)
	}
	if s.Lists, err = mapSliceErr(p.GetLists(), OperatorStateHandleFromProto); err != nil {
		return OperatorSubtaskState{}, fmt.Errorf("operator %s: %w", s.UID, err)
	}
	return s, nil
}

// ToProto converts what a subtask acknowledges.
func (s SubtaskState) ToProto() *pb.SubtaskState {
	return &pb.SubtaskState{
		Subtask:   SubtaskToProto(s.Subtask),
		Operators: mapSlice(s.Operators, OperatorSubtaskState.ToProto),
		EndOfData: s.EndOfData,
		InFlight:  mapSlice(s.InFlight, InFlight.ToProto),
		Emitted:   mapSlice(s.Emitted, EmittedWatermark.ToProto),

		LoopIsEmpty: s.LoopIsEmpty,
	}
}

// SubtaskStateFromProto converts and checks what a subtask acknowledges.
func SubtaskStateFromProto(p *pb.SubtaskState) (SubtaskState, error) {
	subtask, err := SubtaskFromProto(p.GetSubtask())
	if err != nil {
		return SubtaskState{}, err
	}
	operators, err := mapSliceErr(p.GetOperators(), OperatorSubtaskStateFromProto)
	if err != nil {
		return SubtaskState{}, fmt.Errorf("subtask %s: %w", subtask, err)
	}
	s := SubtaskState{Subtask: subtask, Operators: operators, EndOfData: p.GetEndOfData(), LoopIsEmpty: p.GetLoopIsEmpty()}
	if s.InFlight, err = mapSliceErr(p.GetInFlight(), InFlightFromProto); err != nil {
		return SubtaskState{}, fmt.Errorf("subtask %s: %w", subtask, err)
	}
	if s.Emitted, err = mapSliceErr(p.GetEmitted(), EmittedWatermarkFromProto); err != nil {
		return SubtaskState{}, fmt.Errorf("subtask %s: %w", subtask, err)
	}
	return s, nil
}

// ToProto converts the split. The bytes are shared, not copied.
func (s Split) ToProto() *pb.Split { return &pb.Split{Data: s.Data} }

// SplitFromProto converts a split. The bytes are shared, not copied.
func SplitFromProto(p *pb.Split) Split {
	if len(p.GetData()) == 0 {
		return Split{}
	}
	return Split{Data: p.GetData()}
}

// ToProto converts the list of splits.
func (l SplitList) ToProto() *pb.SplitList {
	return &pb.SplitList{Uid: string(l.UID), Splits: mapSlice(l.Splits, Split.ToProto), Complete: l.Complete}
}

// SplitListFromProto converts and checks a list of splits.
func SplitListFromProto(p *pb.SplitList) (SplitList, error) {
	l := SplitList{UID: ids.OperatorUID(p.GetUid()), Splits: mapSlice(p.GetSplits(), SplitFromProto), Complete: p.GetComplete()}
	if err := l.UID.Validate(); err != nil {
		return SplitList{}, fmt.Errorf("split list: %w", err)
	}
	return l, nil
}

// ToProto converts the state of an operator.
func (o OperatorState) ToProto() *pb.OperatorState {
	return &pb.OperatorState{
		Uid:            string(o.UID),
		Parallelism:    int32(o.Parallelism),
		MaxParallelism: int32(o.MaxParallelism),
		Subtasks:       mapSlice(o.Subtasks, OperatorSubtaskState.ToProto),
	}
}

// OperatorStateFromProto converts and checks the state of an operator: every
// subtask has its entry, under the operator's own UID and inside its groups.
func OperatorStateFromProto(p *pb.OperatorState) (OperatorState, error) {
	o := OperatorState{
		UID:            ids.OperatorUID(p.GetUid()),
		Parallelism:    int(p.GetParallelism()),
		MaxParallelism: int(p.GetMaxParallelism()),
	}
	if err := o.UID.Validate(); err != nil {
		return OperatorState{}, err
	}
	fail := func(err error) (OperatorState, error) {
		return OperatorState{}, fmt.Errorf("operator %s: %w", o.UID, err)
	}
	if o.MaxParallelism < 1 || o.MaxParallelism > keygroup.MaxParallelismLimit {
		return fail(fmt.Errorf("max parallelism %d is not between 1 and %d", o.MaxParallelism, keygroup.MaxParallelismLimit))
	}
	if o.Parallelism < 1 || o.Parallelism > o.MaxParallelism {
		return fail(fmt.Errorf("parallelism %d is not between 1 and %d", o.Parallelism, o.MaxParallelism))
	}
	if len(p.GetSubtasks()) != o.Parallelism {
		return fail(fmt.Errorf("has the state of %d subtasks, want %d", len(p.GetSubtasks()), o.Parallelism))
	}
	var err error
	if o.Subtasks, err = mapSliceErr(p.GetSubtasks(), OperatorSubtaskStateFromProto); err != nil {
		return OperatorState{}, err
	}
	for i, subtask := range o.Subtasks {
		if subtask.UID != o.UID {
			return fail(fmt.Errorf("subtask %d has the state of operator %s", i, subtask.UID))
		}
		for _, keyed := range subtask.Keyed {
			if int(keyed.Range.Last) >= o.MaxParallelism {
				return fail(fmt.Errorf("subtask %d has groups %s, of %d", i, keyed.Range, o.MaxParallelism))
			}
		}
	}
	return o, nil
}

// ToProto converts the checkpoint.
func (c *CompletedCheckpoint) ToProto() *pb.CompletedCheckpoint {
	return &pb.CompletedCheckpoint{
		JobId:           string(c.Job),
		Id:              uint64(c.ID),
		Attempt:         AttemptToProto(c.Attempt),
		Kind:            c.Kind.toProto(),
		TriggeredUnixMs: TimeToProto(c.TriggeredAt),
		CompletedUnixMs: TimeToProto(c.CompletedAt),
		Operators:       mapSlice(c.Operators, OperatorState.ToProto),
		Splits:          mapSlice(c.Splits, SplitList.ToProto),
		EndOfData:       mapSlice(c.EndOfData, EndedSubtask.ToProto),
		JobName:         c.JobName,
		Savepoints:      mapSlice(c.Savepoints, func(id ids.CheckpointID) uint64 { return uint64(id) }),
		InFlight:        mapSlice(c.InFlight, InFlight.ToProto),
		Edges:           mapSlice(c.Edges, EdgeState.ToProto),
	}
}

// CompletedCheckpointFromProto converts and checks a checkpoint.
func CompletedCheckpointFromProto(p *pb.CompletedCheckpoint) (*CompletedCheckpoint, error) {
	job, err := ids.ParseJobID(p.GetJobId())
	if err != nil {
		return nil, err
	}
	if p.GetId() == 0 {
		return nil, fmt.Errorf("checkpoint of job %s has no ID", job)
	}
	c := &CompletedCheckpoint{
		Job:         job,
		ID:          ids.CheckpointID(p.GetId()),
		Attempt:     AttemptFromProto(p.GetAttempt()),
		TriggeredAt: TimeFromProto(p.GetTriggeredUnixMs()),
		CompletedAt: TimeFromProto(p.GetCompletedUnixMs()),
		JobName:     p.GetJobName(),
		Savepoints:  mapSlice(p.GetSavepoints(), func(id uint64) ids.CheckpointID { return ids.CheckpointID(id) }),
	}
	fail := func(err error) (*CompletedCheckpoint, error) {
		return nil, fmt.Errorf("checkpoint %d of job %s: %w", c.ID, c.Job, err)
	}
	if c.Kind, err = kindFromProto(p.GetKind()); err != nil {
		return fail(err)
	}
	if c.Operators, err = mapSliceErr(p.GetOperators(), OperatorStateFromProto); err != nil {
		return fail(err)
	}
	if c.Splits, err = mapSliceErr(p.GetSplits(), SplitListFromProto); err != nil {
		return fail(err)
	}
	if c.EndOfData, err = mapSliceErr(p.GetEndOfData(), EndedSubtaskFromProto); err != nil {
		return fail(err)
	}
	if c.Edges, err = mapSliceErr(p.GetEdges(), EdgeStateFromProto); err != nil {
		return fail(err)
	}
	if c.InFlight, err = mapSliceErr(p.GetInFlight(), InFlightFromProto); err != nil {
		return fail(err)
	}
	if err := c.checkInFlight(); err != nil {
		return fail(err)
	}
	return c, nil
}

func (k Kind) toProto() pb.CheckpointKind {
	switch k {
	case Checkpoint:
		return pb.CheckpointKind_CHECKPOINT_KIND_CHECKPOINT
	case Savepoint:
		return pb.CheckpointKind_CHECKPOINT_KIND_SAVEPOINT
	case StopSavepoint:
		return pb.CheckpointKind_CHECKPOINT_KIND_STOP_SAVEPOINT
	case FinalCheckpoint:
		return pb.CheckpointKind_CHECKPOINT_KIND_FINAL
	}
	return pb.CheckpointKind_CHECKPOINT_KIND_UNSPECIFIED
}

func kindFromProto(p pb.CheckpointKind) (Kind, error) {
	switch p {
	case pb.CheckpointKind_CHECKPOINT_KIND_CHECKPOINT:
		return Checkpoint, nil
	case pb.CheckpointKind_CHECKPOINT_KIND_SAVEPOINT:
		return Savepoint, nil
	case pb.CheckpointKind_CHECKPOINT_KIND_STOP_SAVEPOINT:
		return StopSavepoint, nil
	case pb.CheckpointKind_CHECKPOINT_KIND_FINAL:
		return FinalCheckpoint, nil
	case pb.CheckpointKind_CHECKPOINT_KIND_UNSPECIFIED:
	}
	return 0, fmt.Errorf("kind %d is unknown", p)
}

// ToProto converts the name of an ended subtask.
func (e EndedSubtask) ToProto() *pb.EndedSubtask {
	return &pb.EndedSubtask{Uid: string(e.UID), Index: e.Index}
}

// EndedSubtaskFromProto converts and checks the name of an ended subtask.
func EndedSubtaskFromProto(p *pb.EndedSubtask) (EndedSubtask, error) {
	e := EndedSubtask{UID: ids.OperatorUID(p.GetUid()), Index: p.GetIndex()}
	if err := e.UID.Validate(); err != nil {
		return EndedSubtask{}, fmt.Errorf("ended subtask: %w", err)
	}
	if e.Index < 0 {
		return EndedSubtask{}, fmt.Errorf("ended subtask %s has index %d", e.UID, e.Index)
	}
	return e, nil
}

// TimeToProto converts a time to milliseconds since 1970; 0 for the zero time.
func TimeToProto(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// TimeFromProto converts milliseconds since 1970 to a UTC time; 0 gives the zero time.
func TimeFromProto(unixMs int64) time.Time {
	if unixMs == 0 {
		return time.Time{}
	}
	return time.UnixMilli(unixMs).UTC()
}

// mapSlice converts a list; an empty one becomes nil, so that a value and its
// copy over the wire are deeply equal.
func mapSlice[A, B any](in []A, convert func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = convert(a)
	}
	return out
}

func mapSliceErr[A, B any](in []A, convert func(A) (B, error)) ([]B, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		b, err := convert(a)
		if err != nil {
			return nil, err
		}
		out[i] = b
	}
	return out, nil
}
