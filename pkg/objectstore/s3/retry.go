package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirstream/weir/pkg/objectstore"
)

const (
	retryPauseMin = 100 * time.Millisecond
	// retryPauseMax keeps a call responsive once the server serves again, and
	// bounds the attempts within RetryTimeout.
	retryPauseMax = 5 * time.Second
)

// attempt makes one attempt of a request, under its own time limit, and
// classifies its error.
func (c *Client) attempt(ctx context.Context, request func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	attemptCtx, cancel := context.WithTimeout(ctx, c.options.AttemptTimeout)
	defer cancel()
	return c.classify(ctx, request(attemptCtx))
}

// retry repeats a request that may be repeated while the server is
// unavailable, for RetryTimeout. Each caller has its own budget: many calls
// that are throttled at once do not use up each other's.
//
// The returned flag says whether any failed attempt may have taken effect.
func (c *Client) retry(ctx context.Context, request func(context.Context) error) (mayHaveTakenEffect bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	budget := time.NewTimer(c.options.RetryTimeout)
	defer budget.Stop()
	attempts := 0
	for pause := retryPauseMin; ; pause = min(2*pause, retryPauseMax) {
		err = c.attempt(ctx, request)
		attempts++
		if err == nil {
			return mayHaveTakenEffect, nil
		}
		mayHaveTakenEffect = mayHaveTakenEffect || mayHaveWritten(err)
		if !errors.Is(err, objectstore.ErrUnavailable) {
			return mayHaveTakenEffect, err
		}
		// Jitter keeps clients that were throttled together from coming back together.
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-wait.C:
		case <-budget.C:
			wait.Stop()
			return mayHaveTakenEffect, fmt.Errorf("gave up after %d attempts in %v: %w", attempts, c.options.RetryTimeout, err)
		case <-ctx.Done():
			wait.Stop()
			return mayHaveTakenEffect, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}
