// Command imageroot lays out what images FROM scratch lack: certificate
// authorities, time zones, and directories to write to. make images runs it.
//
//	go run ./deploy/imageroot DIR
//
// In DIR/root is what belongs to root, in DIR/owned what belongs to the user
// that the processes run as.
package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: imageroot DIR")
		os.Exit(2)
	}
	if err := layOut(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func layOut(dir string) error {
	for _, part := range []string{"root", "owned"} {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	if err := copyAuthorities(filepath.Join(dir, "root")); err != nil {
		return fmt.Errorf("certificate authorities: %w", err)
	}
	if err := copyTimeZones(filepath.Join(dir, "root", "usr", "share", "zoneinfo")); err != nil {
		return fmt.Errorf("time zones: %w", err)
	}
	temporary := filepath.Join(dir, "root", "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return err
	}
	// Past the umask: everybody may write here.
	if err := os.Chmod(temporary, 0o777|os.ModeSticky); err != nil {
		return err
	}
	// The job's data, the processes' working directory, and the S3 server's bucket.
	for _, owned := range []string{"data", "var/lib/weir", "s3/weir"} {
		if err := os.MkdirAll(filepath.Join(dir, "owned", owned), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// authorities are where systems keep them; Go looks at the first one.
var authorities = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

func copyAuthorities(root string) error {
	for _, name := range authorities {
		content, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return write(filepath.Join(root, authorities[0]), content)
	}
	// An S3 server inside the cluster is reached without TLS.
	fmt.Fprintln(os.Stderr, "warning: this host has no certificate authorities: the images will trust no https:// endpoint")
	return nil
}

// copyTimeZones unpacks the time zones that come with Go.
func copyTimeZones(to string) (err error) {
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goRoot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	for _, entry := range archive.File {
		if entry.FileInfo().IsDir() || !filepath.IsLocal(entry.Name) {
			continue
		}
		reader, err := entry.Open()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(reader)
		if err = errors.Join(err, reader.Close()); err != nil {
			return err
		}
		if err := write(filepath.Join(to, entry.Name), content); err != nil {
			return err
		}
	}
	return nil
}

func write(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}
