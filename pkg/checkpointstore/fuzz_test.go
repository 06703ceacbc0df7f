package checkpointstore

import "testing"

// FuzzFileNames: a name in a listing is what the store gives a file, letter by
// letter, or is left alone: what is parsed may be deleted.
func FuzzFileNames(f *testing.F) {
	for _, name := range []string{"chk-17", "3.1-2.0.5", "shared/3.1/17-2.0.5", "shared/3.1/017-2.0.5", "3.1-2.+0.5", "chk-0", "shared/../x",
		"jobs/0123456789abcdef0123456789abcdef/history/7", "jobs/0123456789abcdef0123456789abcdef/history/07"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, ok := parseCheckpointDir(name); ok && checkpointDir(id) != name {
			t.Errorf("%q is taken for %s", name, checkpointDir(id))
		}
		if file, ok := parseStateFile(name); ok && file.String() != name {
			t.Errorf("%q is taken for %s", name, file)
		}
		if file, ok := parseShared(name); ok && file.name() != name {
			t.Errorf("%q is taken for %s", name, file.name())
		}
		if job, id, ok := parseHistoryObject(name); ok && historyObject(job, id) != name {
			t.Errorf("%q is taken for %s", name, historyObject(job, id))
		}
	})
}
