package local

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Whoever removes what is empty may be faster than whoever has just made it.
func TestDirectoriesThatGoWhileTheyAreMadeAreNoError(t *testing.T) {
	t.Parallel()
	top := filepath.Join(t.TempDir(), "a")
	dir := filepath.Join(top, "b", "c")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				if err := makeDirectories(dir); err != nil {
					t.Error(err)
					return
				}
				for gone := dir; gone != filepath.Dir(top); gone = filepath.Dir(gone) {
					if os.Remove(gone) != nil {
						break
					}
				}
			}
		})
	}
	wait.Wait()
}
