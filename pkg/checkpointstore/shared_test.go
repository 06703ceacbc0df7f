package checkpointstore

import (
	"testing"

	"github.com/weirstream/weir/pkg/ids"
)

func TestSharedNamesAreReadBack(t *testing.T) {
	f := SharedFile{Attempt: ids.AttemptID{Token: 3, Number: 1}, Checkpoint: 17, Subtask: ids.SubtaskID{Vertex: 2, Index: 0}, Seq: 5}
	if got, want := f.name(), "shared/3.1/17-2.0.5"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	if got, ok := parseShared(f.name()); !ok || got != f {
		t.Errorf("read back %+v, %t", got, ok)
	}
	for _, name := range []string{"", "shared", "shared/3.1", "shared/3.1/17", "shared/3.1/017-2.0.5", "shared/3.1/17-2.0", "shared/x/17-2.0.5", "shared/3.1/17-2.0.5/6", "chk-1/3.1-2.0.5"} {
		if got, ok := parseShared(name); ok {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
}
