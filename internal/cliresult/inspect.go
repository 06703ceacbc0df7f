package cliresult

import (
	"encoding/json"
	"time"
)

// Inspection is the output of inspect: what a stored checkpoint or savepoint holds.
type Inspection struct {
	Path string `json:"path"`
	// Kind is checkpoint, savepoint, stop-savepoint or final-checkpoint.
	Kind      string     `json:"kind"`
	ID        uint64     `json:"id"`
	Job       string     `json:"job"`
	JobName   string     `json:"job_name"`
	Attempt   string     `json:"attempt"`
	Triggered *time.Time `json:"triggered,omitempty"`
	Completed *time.Time `json:"completed,omitempty"`
	// Bytes are those of all files and inline state, without the metadata.
	Bytes int64 `json:"bytes"`
	// OwnBytes are those that were uploaded for this checkpoint: without the
	// files that it shares with earlier ones.
	OwnBytes  int64               `json:"own_bytes"`
	Operators []InspectedOperator `json:"operators"`
	Files     []InspectedFile     `json:"files"`
	// Savepoints are those that the job had completed before.
	Savepoints []uint64 `json:"savepoints"`
	// InFlight are the edges that records were in flight on.
	InFlight []InspectedEdge `json:"in_flight,omitempty"`
}

// InspectedEdge is an edge that records were in flight on: barriers overtook
// them, or they were going round a loop.
type InspectedEdge struct {
	Edge string `json:"edge"`
	// Type is the schema of its records.
	Type string `json:"type"`
	// Parts is the number of channels, counted at each end that had some.
	Parts int   `json:"parts"`
	Bytes int64 `json:"bytes"`
	// ProducerBytes of Bytes waited at the producers for credit.
	ProducerBytes int64 `json:"producer_bytes"`
}

// InspectedOperator is one operator in the output of inspect.
type InspectedOperator struct {
	UID            string `json:"uid"`
	Parallelism    int    `json:"parallelism"`
	MaxParallelism int    `json:"max_parallelism"`
	// Ended is how many subtasks had seen the end of their input. It is counted
	// at the first operator of each chain.
	Ended int   `json:"ended"`
	Bytes int64 `json:"bytes"`
	// PendingCommittables are transactions of a sink that were prepared and not
	// yet surely committed: a job that restores commits them.
	PendingCommittables int              `json:"pending_committables"`
	States              []InspectedState `json:"states"`
	Lists               []InspectedList  `json:"lists"`
	// Broadcast are the broadcast maps, which are stored together in one list.
	Broadcast []InspectedBroadcast `json:"broadcast,omitempty"`
	// Splits is absent for operators that are no sources.
	Splits *InspectedSplits `json:"splits,omitempty"`
}

// InspectedState is one keyed state.
type InspectedState struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Codec     string `json:"codec"`
	Schema    string `json:"schema"`
	KeySchema string `json:"key_schema"`
	// Earlier are the codecs and schemas of values that earlier versions of
	// the program stored and that were carried along.
	Earlier []StoredSchema `json:"earlier,omitempty"`
	// Entries and Bytes are of keys and values as they are stored.
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	// SubtaskEntries has the entries of each subtask.
	SubtaskEntries []int64 `json:"subtask_entries"`
	// KeyGroups says how the entries spread over the key groups.
	KeyGroups KeyGroupSpread `json:"key_groups"`
	// Complete is false when a file could not be read: then all counts are too low.
	Complete bool `json:"complete"`
}

// StoredSchema is a schema that values were stored under.
type StoredSchema struct {
	ID     uint64 `json:"id"`
	Codec  string `json:"codec"`
	Schema string `json:"schema"`
}

// KeyGroupSpread says how entries spread over key groups.
type KeyGroupSpread struct {
	// Used groups have entries.
	Used int `json:"used"`
	// Most is the largest number of entries in one group, Largest that group.
	Most    int64 `json:"most"`
	Largest int   `json:"largest"`
	// Mean is of the entries over all groups, empty ones too.
	Mean float64 `json:"mean"`
}

// InspectedList is one named list of operator state.
type InspectedList struct {
	Name string `json:"name"`
	// Redistribution is split-evenly, union or by-index.
	Redistribution string `json:"redistribution"`
	Elements       int    `json:"elements"`
	Bytes          int64  `json:"bytes"`
	// Codec and Schema are of the elements of a list that the program registered.
	Codec  string `json:"codec,omitempty"`
	Schema string `json:"schema,omitempty"`
}

// InspectedBroadcast is one broadcast map.
type InspectedBroadcast struct {
	Name      string `json:"name"`
	Codec     string `json:"codec"`
	Schema    string `json:"schema"`
	KeySchema string `json:"key_schema"`
	// Entries and Bytes are of keys and values as they are stored.
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// InspectedSplits are the splits that a source had found.
type InspectedSplits struct {
	// Complete is set when no further one was to come.
	Complete bool    `json:"complete"`
	Splits   []Split `json:"splits"`
}

// Split is a source's description of one split: as text if it is some, else
// as hexadecimal digits.
type Split struct {
	Text string `json:"text,omitempty"`
	Hex  string `json:"hex,omitempty"`
}

// InspectedFile is one stored piece of state.
type InspectedFile struct {
	// Name is relative to the directory of the job's checkpoints, or of the
	// savepoint; empty for state that is stored inside the metadata.
	Name     string `json:"name"`
	Operator string `json:"operator"`
	Subtask  int    `json:"subtask"`
	// List is the list it holds; empty for keyed state.
	List   string `json:"list,omitempty"`
	Bytes  int64  `json:"bytes"`
	CRC32C string `json:"crc32c"`
	// Shared files may belong to several checkpoints.
	Shared bool `json:"shared"`
	// SharedSince is the checkpoint that a shared file was uploaded for.
	SharedSince uint64 `json:"shared_since,omitempty"`
	// InFlight: it holds records in flight, and belongs to no operator.
	InFlight bool `json:"in_flight,omitempty"`
	// Backend is the state backend that the file is of, if it is a native one.
	Backend string `json:"backend,omitempty"`
	// Problem is what is wrong with it, as far as it was read.
	Problem string `json:"problem,omitempty"`
}

// Verification is the output of inspect --verify.
type Verification struct {
	Path string `json:"path"`
	// Files and Bytes were read and compared with their checksums.
	Files  int             `json:"files"`
	Bytes  int64           `json:"bytes"`
	Broken []InspectedFile `json:"broken"`
}

// DumpedEntry is one line of inspect --dump of a keyed state. Key and Value
// are decoded where the stored schemas say how; otherwise their bytes are
// given as hexadecimal digits, those of a value with its stored header.
type DumpedEntry struct {
	Subtask  int             `json:"subtask"`
	KeyGroup int             `json:"key_group"`
	Key      json.RawMessage `json:"key,omitempty"`
	// UserKey is the user's key, of a map.
	UserKey json.RawMessage `json:"user_key,omitempty"`
	KeyHex  string          `json:"key_hex,omitempty"`
	// WrittenMillis, or AgeMillis, is the time of a value with time-to-live.
	WrittenMillis *int64          `json:"written_ms,omitempty"`
	AgeMillis     *int64          `json:"age_ms,omitempty"`
	Value         json.RawMessage `json:"value,omitempty"`
	ValueHex      string          `json:"value_hex,omitempty"`
}

// DumpedElement is one line of inspect --dump of a list of operator state.
type DumpedElement struct {
	Subtask int `json:"subtask"`
	Element int `json:"element"`
	// Index is the place of the element's split, in lists of sources.
	Index *int64 `json:"index,omitempty"`
	// Value is the element if its schema is known, else Hex its bytes.
	Value json.RawMessage `json:"value,omitempty"`
	Hex   string          `json:"hex,omitempty"`
}
