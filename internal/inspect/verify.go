package inspect

import (
	"context"
	"errors"
	"io"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Verify reads every file and compares it with its size and checksum. Broken
// and missing ones are in the result; the error is about a store that did not
// answer, so that nothing is known of a file.
func (s *Stored) Verify(ctx context.Context) (*cliresult.Verification, error) {
	out := &cliresult.Verification{Path: s.path, Broken: []cliresult.InspectedFile{}}
	for _, p := range s.pieces() {
		for _, h := range p.handles() {
			n, err := s.verify(ctx, h)
			out.Files++
			out.Bytes += n
			if err != nil {
				if isUnknown(ctx, err) {
					return nil, err
				}
				file := describe(p, h)
				file.Problem = problemOf(err)
				out.Broken = append(out.Broken, file)
			}
		}
	}
	return out, nil
}

func (s *Stored) verify(ctx context.Context, h snapshot.StateHandle) (n int64, err error) {
	reader, err := s.store.OpenState(ctx, s.base, h)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	return io.Copy(io.Discard, reader)
}
