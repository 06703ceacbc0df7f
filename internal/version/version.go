// Package version knows which build of Weir this is.
package version

import "runtime/debug"

// stamp is set by the linker: `make build` describes the commit here.
var stamp string

// String returns the version of this binary: what make stamped, else what Go
// recorded about the module, else "dev".
func String() string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
