package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

// withoutSync is fs without waiting for the disk. What a state database keeps
// on local disk need not outlive the host's operating system: what must is in
// the checkpoint storage, and files that are found again are compared with
// their checksums. Opening a database waits for the disk some ten times.
func withoutSync(fs vfs.FS) vfs.FS { return lazyFS{fs} }

type lazyFS struct{ vfs.FS }

func lazy(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

// Create implements vfs.FS.
func (fs lazyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS.
func (fs lazyFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return lazy(fs.FS.OpenReadWrite(name, category, opts...))
}

// OpenDir implements vfs.FS.
func (fs lazyFS) OpenDir(name string) (vfs.File, error) { return lazy(fs.FS.OpenDir(name)) }

// ReuseForWrite implements vfs.FS.
func (fs lazyFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.ReuseForWrite(oldname, newname, category))
}

// Unwrap implements vfs.FS.
func (fs lazyFS) Unwrap() vfs.FS { return fs.FS }

type lazyFile struct{ vfs.File }

// Sync implements vfs.File.
func (lazyFile) Sync() error { return nil }

// SyncData implements vfs.File.
func (lazyFile) SyncData() error { return nil }

// SyncTo implements vfs.File.
func (lazyFile) SyncTo(int64) (fullSync bool, err error) { return false, nil }
