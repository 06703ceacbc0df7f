package subtask

import (
	"testing"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// merged is a view whose file "m" is file "a" of part 7.
type merged struct{ statebackend.FileFrozen }

// OriginOf implements statebackend.Origins.
func (merged) OriginOf(local string) (part int, restored string, ok bool) {
	return 7, "a", local == "m"
}

// TestRestoredFilesAreFoundByOrigin when parts were merged, by name when there
// was only the own one.
func TestRestoredFilesAreFoundByOrigin(t *testing.T) {
	a := snapshot.StateHandle{Name: "shared/1.1/5-1.0.0", Size: 10, SharedSince: 5}
	files := []snapshot.StateFile{{Local: "a", Handle: a}, {Local: "private", Handle: snapshot.StateHandle{Name: "chk-5/1.1-1.0.1", Size: 3}}}
	several, alone := fileMap{}, fileMap{}
	several.addRestored("op", 7, files, false)
	alone.addRestored("op", 0, files, true)
	file := func(local string, size int64) statebackend.File {
		return statebackend.File{Local: local, Size: size, Shared: true}
	}
	for name, c := range map[string]struct {
		in   fileMap
		f    statebackend.File
		view statebackend.FileFrozen
		want bool
	}{
		"by origin":            {several, file("m", 10), merged{}, true},
		"no origin":            {several, file("n", 10), merged{}, false},
		"name alone":           {several, file("a", 10), merged{}, false},
		"backend does not say": {several, file("m", 10), nil, false},
		"own part":             {alone, file("a", 10), nil, true},
		"another size":         {alone, file("a", 11), nil, false},
		"private file":         {alone, file("private", 3), nil, false},
		"not shared":           {alone, statebackend.File{Local: "a", Size: 10}, nil, false},
		"another operator":     {fileMap{}, file("a", 10), nil, false},
	} {
		h, ok := c.in["op"].find(c.f, c.view)
		if ok != c.want || ok && h.Name != a.Name {
			t.Errorf("%s: found %t, %+v", name, ok, h)
		}
	}
}

// TestFileMapsAreBounded: the base stays, however many others come and never end.
func TestFileMapsAreBounded(t *testing.T) {
	var m fileMaps
	files := fileMap{"op": &operatorFiles{}}
	m.put(5, files)
	for id := ids.CheckpointID(6); id < 100; id++ {
		if m.begin(5) == nil {
			t.Fatalf("the base was forgotten at %d", id)
		}
		m.put(id, files)
	}
	if len(m.of) > fileMapsMax+1 {
		t.Errorf("%d maps", len(m.of))
	}
	if m.begin(99) == nil || len(m.of) != 1 {
		t.Errorf("%d maps after a new base", len(m.of))
	}
	m.drop(99)
	if m.begin(99) != nil || m.begin(0) != nil {
		t.Error("a checkpoint that was given up is a base")
	}
}

// TestHalfManifestHasNoFiles, wherever it was cut.
func TestHalfManifestHasNoFiles(t *testing.T) {
	want := []localFile{{name: "shared/1.1/5-1.0.0", size: 10, crc: 0xabc}, {name: "chk-5/1.1-1.0.1", size: 0, isCopy: true}}
	whole := string(encodeLocalSet(want))
	got, ok := parseLocalSet(whole)
	if !ok || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("read %+v, %t", got, ok)
	}
	for n := range len(whole) {
		if files, ok := parseLocalSet(whole[:n]); ok || files != nil {
			t.Errorf("%q has files %v", whole[:n], files)
		}
	}
}
