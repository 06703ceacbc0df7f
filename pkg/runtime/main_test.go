package runtime

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// roleVariable makes the test binary a process of these tests: an executor or
// a TaskManager that starts one.
const roleVariable = "WEIR_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "executor":
		beExecutor(os.Args[1])
	case "taskmanager":
		beTaskManager(os.Args[1])
	}
}

// beExecutor does what its argument says.
func beExecutor(what string) {
	switch what {
	case "stay": // whatever happens to the lifeline
		select {}
	case "follow": // the lifeline, as executors do
		_, _ = io.Copy(io.Discard, os.NewFile(executor.LifelineFD, "lifeline"))
		os.Exit(7)
	case "panic":
		fmt.Println("out[1]> a record")
		fmt.Fprintln(os.Stderr, "about to fail")
		done := make(chan struct{})
		go func() { panic("no such flight") }()
		<-done
	case "unusable":
		fmt.Fprintln(os.Stderr, "the graph is another one")
		os.Exit(executor.ExitUnusable)
	case "environment":
		for _, entry := range os.Environ() {
			fmt.Println(entry)
		}
	}
}

// beTaskManager starts an executor, says its PID and stays.
func beTaskManager(what string) {
	dir, err := os.MkdirTemp(os.Getenv("WEIR_TEST_DIR"), "")
	if err == nil {
		var e Execution
		l := NewProcessLauncher([]string{roleVariable + "=executor"}, zap.NewNop())
		if e, err = l.Start(context.Background(), testSpec(dir, what)); err == nil {
			fmt.Println(e.PID())
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func testSpec(dir, what string) LaunchSpec {
	binary, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if binary, err = filepath.EvalSymlinks(binary); err != nil {
		panic(err)
	}
	return LaunchSpec{
		Executor: ids.ExecutorID{Job: "0123456789abcdef0123456789abcdef", Attempt: ids.AttemptID{Token: 1, Number: 1}, TaskManager: "tm"},
		Binary:   binary, Args: []string{what}, Dir: dir, Output: func(string) {},
	}
}
