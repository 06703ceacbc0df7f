package memory_test

import (
	"testing"

	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/backendtest"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(*testing.T) statebackend.Backend { return memory.New() })
}
