package stream

import (
	"errors"

	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// runDirect runs the job on an embedded cluster.
func runDirect(p *process, _ *operator.Program, _ directOptions) int {
	return p.fail(1, errors.New("this build has no embedded cluster: submit the program with flinkctl"))
}

// runExecutor runs subtasks for a TaskManager.
func runExecutor(program *operator.Program) int { return executor.Main(program) }
