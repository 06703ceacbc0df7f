package archtest

import (
	"strings"
	"testing"
)

// TestChecksNoticeWhatIsPlanted tries every check on a file that breaks its
// rule, and on a neighbour that does not.
func TestChecksNoticeWhatIsPlanted(t *testing.T) {
	invariantsOf := func(file *sourceFile) (found []string) {
		for name := range invariantChecks(file) {
			found = append(found, name)
		}
		return found
	}
	for _, test := range []struct {
		name, file, source string
		check              func(*sourceFile) []string
		want               string // in the one violation; empty for none
	}{
		{"upward import", "pkg/ids/a.go", `import "github.com/weirstream/weir/pkg/coordinator"`, upwardImports, "imports point down"},
		{"SDK below the top", "pkg/minicluster/a.go", `import "github.com/weirstream/weir/pkg/stream"`, upwardImports, "imports point down"},
		{"downward import", "pkg/coordinator/a.go", `import "github.com/weirstream/weir/pkg/ids"`, upwardImports, ""},
		{"upward import in a test", "pkg/ids/a_test.go", `import "github.com/weirstream/weir/pkg/graph"`, upwardImports, ""},
		{"logger in a part", "pkg/state/a.go", `import "go.uber.org/zap"`, refusedImports, "only shells log"},
		{"logger in a shell", "pkg/runtime/task/a.go", `import "go.uber.org/zap"`, refusedImports, ""},
		{"S3 client elsewhere", "pkg/checkpointstore/a.go", `import "github.com/minio/minio-go/v7"`, refusedImports, "one package knows the S3 client"},
		{"S3 client at home", "pkg/objectstore/s3/a.go", `import "github.com/minio/minio-go/v7/pkg/credentials"`, refusedImports, ""},
		{"gRPC in a shell", "pkg/runtime/task/a.go", `import "google.golang.org/grpc"`, refusedImports, "pkg/transport and the mains"},
		{"gRPC stubs in a shell", "pkg/jobmanager/a.go", `import "github.com/weirstream/weir/pkg/transport/rpc"`, refusedImports, "clients and servers"},
		{"gRPC in transport", "pkg/transport/a.go", `import "google.golang.org/grpc"`, refusedImports, ""},
		{"gRPC buffers in the exchange", "pkg/runtime/exchange/a.go", `import "google.golang.org/grpc/mem"`, refusedImports, ""},
		{"gRPC buffers elsewhere", "pkg/runtime/task/a.go", `import "google.golang.org/grpc/mem"`, refusedImports, "only the exchange"},
		{"message in a protocol", "pkg/coordinator/a.go", `import "github.com/weirstream/weir/pkg/pb"`, refusedImports, "never see one"},
		{"old randomness", "pkg/runtime/task/a.go", `import "math/rand"`, refusedImports, "math/rand/v2"},
		{"new randomness", "pkg/runtime/task/a.go", `import "math/rand/v2"`, refusedImports, ""},
		{"lock in a pure package", "pkg/coordinator/a.go", `import "sync/atomic"`, impureUses, "nothing to lock"},
		{"file in a pure package", "pkg/graph/a.go", `import "os"`, impureUses, "only shells touch files"},
		{"network in a pure package", "pkg/graph/a.go", `import "net/http"`, impureUses, "only shells talk to others"},
		{"parser below net", "pkg/graph/a.go", `import "net/url"`, impureUses, ""},
		{"file where it is allowed", "pkg/config/load.go", `import "os"`, impureUses, ""},
		{"clock", "pkg/coordinator/a.go", `import "time"; var a = time.Now`, clockUses, "uses time.Now"},
		{"renamed clock", "pkg/coordinator/a.go", `import wall "time"; var a = wall.Since`, clockUses, "uses time.Since"},
		{"duration", "pkg/coordinator/a.go", `import "time"; var a = time.Second`, clockUses, ""},
		{"global randomness", "pkg/coordinator/a.go", `import "math/rand/v2"; var a = rand.IntN(3)`, clockUses, "uses rand.IntN"},
		{"seeded randomness", "pkg/coordinator/a.go", `import "math/rand/v2"; var a = rand.New(rand.NewPCG(1, 2))`, clockUses, ""},
		{"go statement", "pkg/coordinator/a.go", `func f() { go f() }`, concurrency, "a go statement"},
		{"select statement", "pkg/coordinator/a.go", `func f() { select {} }`, concurrency, "a select statement"},
		{"channel", "pkg/coordinator/a.go", `var a chan int`, concurrency, "a channel"},
		{"receive", "pkg/coordinator/a.go", `func f() { <-a }`, concurrency, "a receive"},
		{"send", "pkg/coordinator/a.go", `func f() { a <- 1 }`, concurrency, "a send"},
		{"goroutine", "pkg/state/a.go", `func f() { go f() }`, goroutines, "starts a goroutine"},
		{"goroutine of a group", "pkg/state/a.go", `func f() { group.Go(f) }`, goroutines, "starts a goroutine"},
		{"sleep in code", "pkg/runtime/task/a.go", `import "time"; func f() { time.Sleep(1) }`, sleeps, "sleeps"},
		{"sleep in a test", "pkg/runtime/task/a_test.go", `import "time"; func f() { time.Sleep(1) }`, sleeps, "sleeps"},
		{"sleep on a fake clock", "pkg/runtime/task/a_test.go", `import ("testing/synctest"; "time"); func f() { time.Sleep(1) }`, sleeps, ""},
		{"skip", "pkg/state/a_test.go", `import "testing"; func f(t *testing.T) { t.Skip() }`, skips, "skips a test"},
		{"short", "pkg/state/a_test.go", `import "testing"; func f() { testing.Short() }`, skips, "skips a test"},
		{"skip of something else", "pkg/state/a_test.go", `import "testing"; func f() { reader.Skip(3) }`, skips, ""},
		{"copied aligner", "internal/sim/a.go", `type a struct{ n int }; func (*a) Barrier() {}; func (*a) CancelMarker() {}; func (*a) IsBlocked() {}`, copiedMachines, "no copy of it"},
		{"watched aligner", "internal/sim/a.go", `type a struct{ subtask.Aligner }; func (*a) Barrier() {}; func (*a) CancelMarker() {}`, copiedMachines, ""},
		{"copied coordinator", "internal/sim/a.go", `type a struct{ n int }; func (*a) Step() {}; func (*a) nextDeadline() {}`, copiedMachines, "no copy of it"},
		{"copied subtask", "internal/sim/simjob/a.go", `func (a) Trigger() {}; func (a) NotifyComplete() {}; func (a) NotifyAborted() {}`, copiedMachines, "no copy of it"},
		{"aligner at home", "pkg/runtime/align/a.go", `func (a) Barrier() {}; func (a) CancelMarker() {}`, copiedMachines, ""},
		{"work left over", "pkg/state/a.go", "// " + unfinished[0] + ": more\nvar a int", leftovers, "finish it"},
		{"invariant", "pkg/state/a.go", `import "github.com/weirstream/weir/internal/invariant"; func f() { invariant.Check(true, "I3", "") }`, invariantsOf, "I3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := parseSource(test.file, []byte("package a\n\n"+test.source+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			violations := test.check(file)
			if test.want == "" {
				report(t, violations)
				return
			}
			if len(violations) != 1 || !strings.Contains(violations[0], test.want) {
				t.Errorf("violations are %q, want one with %q", violations, test.want)
			}
		})
	}
}

func TestTagOfProcessTests(t *testing.T) {
	for source, want := range map[string]bool{
		"//go:build e2e\n\npackage a":          true,
		"//go:build linux && e2e\n\npackage a": true,
		"//go:build !e2e\n\npackage a":         false,
		"package a\n\n//go:build e2e":          false,
	} {
		file, err := parseSource("a/a_test.go", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		if file.isE2E != want {
			t.Errorf("%q is a test of processes: %v", source, file.isE2E)
		}
	}
}
