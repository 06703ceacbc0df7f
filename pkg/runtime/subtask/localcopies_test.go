package subtask

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// What keeps local copies from being made is told once, again when it is
// something else, and again when it comes back.
func TestLastingErrorOfLocalCopiesIsToldOnce(t *testing.T) {
	var l localCopies
	l.init(t.TempDir(), ids.SubtaskID{}, 0)
	for i, step := range []struct {
		err  error
		told bool
	}{
		{syscall.ENOSPC, true}, {syscall.ENOSPC, false}, {syscall.EROFS, true}, {syscall.EROFS, false}, {nil, false}, {syscall.EROFS, true},
	} {
		h := snapshot.StateHandle{Name: fmt.Sprint("shared/1.1/", i), Size: 1}
		l.keep(h, true, func(path string) error {
			if step.err == nil {
				return os.WriteFile(path, []byte("x"), 0o600)
			}
			return &os.PathError{Op: "write", Path: path, Err: step.err}
		})
		if err := l.takeErr(); (err != nil) != step.told {
			t.Errorf("checkpoint %d, %v: told %v", i, step.err, err)
		}
		l.abandon()
	}
}
