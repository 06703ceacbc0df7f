package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

// lazyFS is a file system that does not sync: what is written here is worth
// nothing after a crash of the host, and a crash of the process leaves it whole.
type lazyFS struct{ vfs.FS }

// Create implements vfs.FS.
func (fs lazyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (fs lazyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return lazy(fs.FS.OpenReadWrite(name, c, opts...))
}

// OpenDir implements vfs.FS.
func (fs lazyFS) OpenDir(name string) (vfs.File, error) { return lazy(fs.FS.OpenDir(name)) }

// ReuseForWrite implements vfs.FS.
func (fs lazyFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return lazy(fs.FS.ReuseForWrite(oldname, newname, c))
}

// Unwrap implements vfs.FS.
func (fs lazyFS) Unwrap() vfs.FS { return fs.FS }

type lazyFile struct{ vfs.File }

func lazy(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

// Sync implements vfs.File.
func (lazyFile) Sync() error { return nil }

// SyncData implements vfs.File.
func (lazyFile) SyncData() error { return nil }

// SyncTo implements vfs.File.
func (lazyFile) SyncTo(int64) (bool, error) { return true, nil }
