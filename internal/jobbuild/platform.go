package jobbuild

import (
	"fmt"
	"runtime"
	"strings"
)

// Platform is an operating system and an architecture in Go's words.
type Platform struct{ OS, Arch string }

// Host is the platform of this process.
func Host() Platform { return Platform{OS: runtime.GOOS, Arch: runtime.GOARCH} }

// ParsePlatform reads "linux/amd64".
func ParsePlatform(text string) (Platform, error) {
	system, arch, ok := strings.Cut(text, "/")
	if !ok || system == "" || arch == "" {
		return Platform{}, fmt.Errorf("platform %q: want GOOS/GOARCH, as in linux/amd64", text)
	}
	return Platform{OS: system, Arch: arch}, nil
}

// String prints "linux/amd64".
func (p Platform) String() string { return p.OS + "/" + p.Arch }
