package minicluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/print"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunPrintsEverythingAndFinishes(t *testing.T) {
	env := stream.NewEnv("sums")
	numbers := stream.From(env, "numbers", datagen.Sequence(100, datagen.WithFirst(1)))
	byParity := stream.KeyBy(numbers, func(v uint64) uint64 { return v % 2 })
	sums := stream.Reduce(byParity, "sums", func(a, b uint64) (uint64, error) { return a + b, nil })
	stream.To(sums, "out", print.Sink[uint64]())
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var output strings.Builder
	err = minicluster.Run(ctx, "", program, minicluster.RunOptions{
		Parallelism: 2, Dir: t.TempDir(), Output: &output, Log: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(output.String(), "\n"); lines != 100 {
		t.Errorf("%d lines were printed, want 100", lines)
	}
	for _, last := range []int{2500, 2550} { // the sums of the odd and of the even numbers
		if !strings.Contains(output.String(), fmt.Sprintf("> %d\n", last)) {
			t.Errorf("the sum %d was not printed", last)
		}
	}
}
