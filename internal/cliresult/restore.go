package cliresult

// RestorePlan is the output of submit --dry-run: what the job would start from.
type RestorePlan struct {
	// From is the savepoint or checkpoint; empty for a start from nothing. Kind,
	// Checkpoint and Job say what it is.
	From       string          `json:"from"`
	Kind       string          `json:"kind"`
	Checkpoint uint64          `json:"checkpoint"`
	Job        string          `json:"job"`
	States     []RestoredState `json:"states"`
	// Problem is why the submission would be refused; empty if it would not.
	Problem string `json:"problem"`
}

// RestoredState is one state of an operator, or an operator without state.
type RestoredState struct {
	Operator string `json:"operator"`
	// State is empty where nothing is stored of the operator.
	State string `json:"state"`
	// Kind is that of a keyed state, list or broadcast for operator state, or splits.
	Kind string `json:"kind"`
	// Match is matches, migrated, new, dropped or incompatible.
	Match string `json:"match"`
	// Changes of a migrated state in words; of an incompatible one, why.
	Changes []string `json:"changes,omitempty"`
	// The parallelism is 0 where there is no such operator.
	OldParallelism int32 `json:"old_parallelism"`
	NewParallelism int32 `json:"new_parallelism"`
}

// Disposed is the output of savepoint dispose: the savepoint that is gone.
type Disposed struct {
	Path       string `json:"path"`
	Job        string `json:"job"`
	Checkpoint uint64 `json:"checkpoint"`
}
