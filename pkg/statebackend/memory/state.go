package memory

import (
	"github.com/weirstream/weir/pkg/statebackend"
)

// Name is the backend's name in state.backend.type.
const Name = "memory"

// Backend opens keyed state on the heap.
type Backend struct{}

// New makes the backend. It has no settings.
func New() *Backend { return &Backend{} }

// Name is "memory".
func (*Backend) Name() string { return Name }

// Open makes the empty keyed state of one operator in one subtask: a *State.
func (*Backend) Open(o statebackend.Options) (statebackend.KeyedState, error) {
	return &State{options: o}, nil
}

// State is the keyed state of one operator in one subtask.
type State struct {
	options statebackend.Options
}

// Restore implements statebackend.KeyedState.
func (s *State) Restore(parts []statebackend.RestoredPart) error { panic("in progress") }

// Freeze implements statebackend.KeyedState.
func (s *State) Freeze() (statebackend.Frozen, error) { panic("in progress") }

// Stats implements statebackend.KeyedState.
func (s *State) Stats() statebackend.Stats { panic("in progress") }

// Close implements statebackend.KeyedState.
func (s *State) Close() error { panic("in progress") }

// NewValue registers a value per key.
func NewValue[K comparable, V any](s *State, d statebackend.Descriptor[K, V]) (statebackend.Value[V], error) {
	panic("in progress")
}
