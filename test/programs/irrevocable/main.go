// Command irrevocable counts generated records by key, and writes every count
// with a two-phase sink that cannot take back what it has committed.
package main

import (
	"context"
	"flag"
	"math"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records = flag.Uint64("records", 10000, "generate `N` records")
	rate    = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	output  = flag.String("output", "irrevocable-output", "write counts to files in `DIR`")
)

// keys is how many keys the records have.
const keys = 100

// Count is how many records of a key there were so far.
type Count struct {
	Key   uint64 `json:"key"`
	Count uint64 `json:"count"`
}

func main() {
	stream.Main("irrevocable", func(env *stream.Env) error {
		ones := stream.From(env, "numbers", datagen.Generate(*records, func(i uint64) Count {
			return Count{Key: i % keys, Count: 1}
		}, datagen.WithRate(*rate)))
		byKey := stream.KeyBy(ones, func(c Count) uint64 { return c.Key })
		counts := stream.Reduce(byKey, "counts", func(sofar, c Count) (Count, error) {
			sofar.Count += c.Count
			return sofar, nil
		})
		stream.To(counts, "out", irrevocable{file.ExactlyOnce[Count](*output)})
		return nil
	})
}

// irrevocable has what TwoPhase has, and so is not Revocable.
type irrevocable struct{ operator.TwoPhase[Count] }

// OpenCommitter implements operator.TwoPhase.
func (s irrevocable) OpenCommitter(ctx *operator.Context) (operator.Committer, error) {
	c, err := s.TwoPhase.OpenCommitter(ctx)
	return keeping{c}, err
}

// keeping leaves what is committed or prepared where it is.
type keeping struct{ operator.Committer }

// Recover implements operator.Committer.
func (c keeping) Recover(ctx context.Context, r operator.Recovery) error {
	r.Restored = math.MaxUint64
	return c.Committer.Recover(ctx, r)
}
