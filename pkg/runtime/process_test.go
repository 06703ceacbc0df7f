package runtime

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// launched starts an executor of the given kind and returns its exit and what it printed.
func launched(t *testing.T, spec LaunchSpec) (Exit, []string) {
	t.Helper()
	l := newTestLauncher(t)
	var mu sync.Mutex
	var printed []string
	spec.Output = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		printed = append(printed, line)
	}
	e, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	exit := e.Wait()
	mu.Lock()
	defer mu.Unlock()
	return exit, printed
}

func newTestLauncher(t *testing.T) *ProcessLauncher {
	t.Helper()
	l := NewProcessLauncher([]string{roleVariable + "=executor"}, zap.NewNop())
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestPanicGoesWithTheExit(t *testing.T) {
	exit, printed := launched(t, testSpec(t.TempDir(), "panic"))
	if exit.Code != 2 || exit.Signal != "" || exit.Kind != pb.FailureKind_FAILURE_KIND_UNSPECIFIED {
		t.Errorf("exit: %+v", exit)
	}
	if !strings.Contains(exit.StderrTail, "about to fail\npanic: no such flight\n") || !strings.Contains(exit.StderrTail, "beExecutor") {
		t.Errorf("stderr: %s", exit.StderrTail)
	}
	if !strings.Contains(strings.Join(printed, "\n"), "out[1]> a record") {
		t.Errorf("printed: %q", printed)
	}
}

func TestExitCodesOfExecutorsHaveAMeaning(t *testing.T) {
	exit, _ := launched(t, testSpec(t.TempDir(), "unusable"))
	if exit.Code != executor.ExitUnusable || exit.Kind != pb.FailureKind_FAILURE_KIND_PERMANENT || exit.StderrTail != "the graph is another one\n" {
		t.Errorf("exit: %+v", exit)
	}
}

func TestExecutorFollowsItsLifelineAndDiesWhenKilled(t *testing.T) {
	l := newTestLauncher(t)
	e, err := l.Start(t.Context(), testSpec(t.TempDir(), "follow"))
	if err != nil {
		t.Fatal(err)
	}
	e.End()
	if exit := e.Wait(); exit.Code != 7 {
		t.Errorf("after the lifeline's end: %+v", exit)
	}
	if e, err = l.Start(t.Context(), testSpec(t.TempDir(), "stay")); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	if exit := e.Wait(); exit.Signal != "killed" {
		t.Errorf("after a kill: %+v", exit)
	}
	e.Kill() // does nothing
}

func TestExecutorSeesWhatIsDeclaredAndLittleElse(t *testing.T) {
	t.Setenv("WEIR_TEST_SECRET", "of the TaskManager")
	t.Setenv("TZ", "Europe/Berlin")
	spec := testSpec(t.TempDir(), "environment")
	spec.Environment = map[string]string{"DECLARED": "yes", "TZ": "UTC"}
	spec.MemoryLimitBytes = 1 << 30
	_, printed := launched(t, spec)
	all := "\n" + strings.Join(printed, "\n") + "\n"
	for _, want := range []string{"\nDECLARED=yes\n", "\nTZ=UTC\n", "\nGOMEMLIMIT=1073741824\n", "\nPATH=", "\n" + executor.SpecVariable + "="} {
		if !strings.Contains(all, want) {
			t.Errorf("environment lacks %q:%s", want, all)
		}
	}
	if strings.Contains(all, "WEIR_TEST_SECRET") || strings.Contains(all, "Berlin") {
		t.Errorf("environment has what was not declared:%s", all)
	}
}

// Both ways in which executors end with their TaskManager: by the kernel,
// though the executor ignores its lifeline, and by the lifeline.
func TestKilledTaskManagerEndsItsExecutors(t *testing.T) {
	kinds := []string{"follow"}
	if hasDeathSignal {
		kinds = append(kinds, "stay")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			binary, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(ctx, binary, kind)
			cmd.Env = append(os.Environ(), roleVariable+"=taskmanager", "WEIR_TEST_DIR="+t.TempDir())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if !isAlive(pid) {
				t.Fatal("the executor does not run")
			}
			killed := time.Now()
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			ticker := time.NewTicker(5 * time.Millisecond)
			defer ticker.Stop()
			for isAlive(pid) {
				if time.Since(killed) > time.Second {
					t.Fatalf("executor %d is alive a second after its TaskManager was killed", pid)
				}
				<-ticker.C
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Error(err)
			}
		})
	}
}

// isAlive reports whether there is a process that is no zombie.
func isAlive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !hasDeathSignal // without /proc the signal's word counts
	}
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	return fields[0] != "Z" && fields[0] != "X"
}

func TestBinariesThatCannotRunHereSayWhy(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	l := newTestLauncher(t)
	for name, c := range map[string]struct{ binary, text string }{
		"other platform": {write("other", []byte("MZ no binary of this system"), 0o700), "is not one for"},
		"not executable": {write("plain", []byte("x"), 0o600), "blob.storage.directory"},
	} {
		spec := testSpec(t.TempDir(), "stay")
		spec.Binary = c.binary
		_, err := l.Start(t.Context(), spec)
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	spec := testSpec(t.TempDir(), "stay")
	spec.Binary = filepath.Join(dir, "missing")
	if _, err := l.Start(t.Context(), spec); err == nil || errors.Is(err, ErrUnusable) {
		t.Errorf("a file that is not there may come back: %v", err)
	}
}
