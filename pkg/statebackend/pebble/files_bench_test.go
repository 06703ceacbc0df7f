package pebble

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func benchOptions() *pebble.Options {
	return &pebble.Options{FS: withoutSync(vfs.Default), DisableWAL: true, Logger: quietLogger{}, FormatMajorVersion: pebble.FormatTableFormatV6}
}

// Four parts of together some 70 MB.
func benchParts(b *testing.B, parallelism int) []filePart {
	return filledParts(b, benchOptions(), parallelism, 40_000, 100)
}

func bytesOf(parts []filePart) (sum int64) {
	for _, p := range parts {
		for _, f := range p.Files {
			sum += f.Size
		}
	}
	return sum
}

// BenchmarkFiles compares restores from files with copying the files, and with
// what they are there to avoid.
func BenchmarkFiles(b *testing.B) {
	for _, parallelism := range []int{1, 4} {
		parts := benchParts(b, parallelism)
		each := func(name string, restore func(dir string) error) {
			b.Run(fmt.Sprintf("from=%d/%s", parallelism, name), func(b *testing.B) {
				b.SetBytes(bytesOf(parts))
				root := b.TempDir()
				n := 0
				var disk int64
				for b.Loop() {
					dir := filepath.Join(root, fmt.Sprint(n))
					n++
					must(b, restore(dir))
					b.StopTimer()
					disk = ownBytes(b, dir)
					must(b, os.RemoveAll(dir))
					b.StartTimer()
				}
				b.ReportMetric(float64(disk)/1e6, "newMB")
			})
		}
		open := func(dir string) error {
			db, _, err := openFiles(dir, benchOptions(), parts, everything)
			must(b, err)
			return db.Close()
		}
		each("to=1/open", open)
		each("to=1/copy", func(dir string) error { return copyParts(dir, parts) })
		each("to=1/rewrite", func(dir string) error {
			db, _, err := openFiles(dir, benchOptions(), nil, everything)
			must(b, err)
			batch := db.NewBatch()
			must(b, readFiles(dir+"-read", benchOptions(), parts, everything, func(key, value []byte) error {
				if batch.Len() > 1<<20 {
					if err := batch.Commit(pebble.NoSync); err != nil {
						return err
					}
					batch.Reset()
				}
				return batch.Set(key, value, nil)
			}))
			must(b, batch.Commit(pebble.NoSync))
			must(b, db.Flush())
			return db.Close()
		})
	}
}

func copyParts(dir string, parts []filePart) error {
	for i, p := range parts {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, f := range p.Files {
			if err := copyFile(f.Path, filepath.Join(to, f.Local)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	// Without the kernel's shortcuts for whole files: bytes that come from
	// elsewhere do not have them either.
	if _, err := io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src}); err != nil {
		return err
	}
	return dst.Close()
}

// ownBytes is what is on disk in dir and nowhere else.
func ownBytes(b *testing.B, dir string) (sum int64) {
	b.Helper()
	must(b, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() && linkCount(info) == 1 {
			sum += info.Size()
		}
		return nil
	}))
	return sum
}

func linkCount(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
