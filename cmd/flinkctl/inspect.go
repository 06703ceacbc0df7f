package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/inspect"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/runtime"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// fileReaders read the files in which state backends keep keyed state.
var fileReaders = map[string]inspect.FileReader{pebble.Name: pebble.ReadFiles}

// inspection is what the flags of inspect say.
type inspection struct {
	path, dump string
	verify     bool
	settings   []string
}

func (c *cli) inspectCommand() *cobra.Command {
	var s inspection
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Show what a stored checkpoint or savepoint holds",
		Long: "Read the checkpoint or savepoint at PATH, a directory or an s3:// URI, without a\n" +
			"cluster: its job, operators, states with codecs and schemas, entries, key groups,\n" +
			"splits, pending transactions and files.\n\n" +
			"--verify reads every file, compares it with its checksum, and exits 1 with a line for\n" +
			"each that is broken or missing. --dump prints the entries of one state, a JSON object\n" +
			"on each line: keys and values are decoded where the stored schemas say how, other\n" +
			"bytes are hexadecimal digits. The lines are good only if the command exits 0.",
		Example: "  flinkctl inspect savepoints/savepoint-4f2a5100000000000000000000000001-17\n" +
			"  flinkctl inspect --verify cluster/checkpoints/4f2a5100000000000000000000000001/chk-42\n" +
			"  flinkctl inspect -D s3.endpoint=http://127.0.0.1:9000 -D s3.path-style-access=true s3://weir/sp/savepoint-…-17\n" +
			"  flinkctl inspect --dump delays/stats savepoints/savepoint-…-17 | jq .value",
		Args: onePath("inspect"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.path = args[0]
			if err := c.inspect(cmd.Context(), s); err != nil {
				return failStored(cmd.Context(), s.path, err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&s.verify, "verify", false, "compare every file with its checksum")
	flags.StringVar(&s.dump, "dump", "", "print the entries of one state, named as `UID/STATE`")
	flags.StringArrayVarP(&s.settings, "define", "D", nil, "set a configuration option as `key=value`, as in s3.endpoint; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("verify", "dump")
	return cmd
}

// onePath accepts the path or URI of a checkpoint or savepoint.
func onePath(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("%s needs one path or URI of a checkpoint or savepoint", verb)
		}
		return nil
	}
}

// withStored gives what reads and writes stores as the settings say, and the
// absolute location.
func withStored(path string, settings []string, do func(opener checkpointstore.Opener, location string) error) error {
	var none *config.Config
	set, err := none.WithJob(settings)
	if err != nil {
		return err
	}
	location, err := absoluteLocation(path)
	if err != nil {
		return err
	}
	var stores runtime.Stores
	defer stores.Close()
	return do(stores.Opener(set), location)
}

// failStored makes the failure of a verb that reads a stored checkpoint.
func failStored(ctx context.Context, path string, err error) *failure {
	f := fail(ctx, err)
	switch {
	case errors.As(err, new(*failure)):
	case errors.Is(err, objectstore.ErrNotExist):
		f.code, f.message = codeNotFound, fmt.Sprintf("%s holds no checkpoint or savepoint (no _metadata)", path)
	case errors.Is(err, objectstore.ErrUnavailable):
		f.code = codeUnreachable
	case errors.Is(err, inspect.ErrNoState):
		f.code = codeNotFound
	case errors.Is(err, objectstore.ErrDenied), errors.Is(err, objectstore.ErrNoBucket):
		f.code, f.hint = codeRefused, "settings of an S3 server are given with -D s3.endpoint=… and the like"
	}
	return f
}

func (c *cli) inspect(ctx context.Context, s inspection) error {
	return withStored(s.path, s.settings, func(opener checkpointstore.Opener, location string) error {
		stored, err := inspect.Open(ctx, opener, location, fileReaders)
		switch {
		case err != nil:
			return err
		case s.verify:
			return c.verify(ctx, stored)
		case s.dump != "":
			return c.dump(ctx, stored, s.dump)
		}
		summary, err := stored.Summary(ctx)
		if err != nil {
			return err
		}
		if err := c.result(summary, func() error { return c.printInspection(summary) }); err != nil {
			return err
		}
		return brokenFiles(brokenOf(summary.Files), len(summary.Files))
	})
}

// dump prints the entries of a state. A file that is missing then is not a
// checkpoint that is missing.
func (c *cli) dump(ctx context.Context, stored *inspect.Stored, target string) error {
	err := stored.Dump(ctx, target, c.stdout)
	if errors.Is(err, objectstore.ErrNotExist) || errors.Is(err, checkpointstore.ErrCorrupt) {
		return &failure{code: codeFailed, message: err.Error(), hint: "flinkctl inspect --verify names all files that are broken", err: err}
	}
	return err
}

func (c *cli) verify(ctx context.Context, stored *inspect.Stored) error {
	verification, err := stored.Verify(ctx)
	if err != nil {
		return err
	}
	err = c.result(verification, func() error {
		for _, file := range verification.Broken {
			if err := c.say("broken: %s\n", describeFile(file)); err != nil {
				return err
			}
		}
		return c.say("verified: %d files, %d broken, %s\n", verification.Files, len(verification.Broken), showBytes(verification.Bytes))
	})
	if err != nil {
		return err
	}
	return brokenFiles(verification.Broken, verification.Files)
}

func brokenOf(files []cliresult.InspectedFile) []cliresult.InspectedFile {
	var broken []cliresult.InspectedFile
	for _, file := range files {
		if file.Problem != "" {
			broken = append(broken, file)
		}
	}
	return broken
}

// brokenFiles is the failure that names the files, nil if there are none.
func brokenFiles(broken []cliresult.InspectedFile, of int) error {
	if len(broken) == 0 {
		return nil
	}
	names := make([]string, len(broken))
	for i, file := range broken {
		names[i] = describeFile(file)
	}
	return &failure{code: codeFailed, message: fmt.Sprintf("%d of %d files are broken: %s", len(broken), of, strings.Join(names, "; "))}
}

// describeFile names a file with the operator and subtask whose state it has.
func describeFile(file cliresult.InspectedFile) string {
	name := file.Name
	if name == "" {
		name = "inline state"
	}
	if file.InFlight {
		return fmt.Sprintf("%s of records in flight: %s", name, file.Problem)
	}
	return fmt.Sprintf("%s of %s[%d]: %s", name, file.Operator, file.Subtask, file.Problem)
}

func (c *cli) printInspection(s *cliresult.Inspection) error {
	own := ""
	if s.OwnBytes != s.Bytes {
		own = fmt.Sprintf(", %s of them uploaded for this checkpoint", showBytes(s.OwnBytes))
	}
	if err := c.say("%s %d of job %s (%s), attempt %s\ntriggered %s, completed %s, %s in %d files%s\n",
		s.Kind, s.ID, s.Job, showText(s.JobName), s.Attempt, showTime(s.Triggered), showTime(s.Completed), showBytes(s.Bytes), len(s.Files), own); err != nil {
		return err
	}
	for _, op := range s.Operators {
		if err := c.printOperator(op); err != nil {
			return err
		}
	}
	for _, e := range s.InFlight {
		if err := c.say("\nin flight on %s (%s): %s in %d parts, %s of them at producers\n",
			e.Edge, e.Type, showBytes(e.Bytes), e.Parts, showBytes(e.ProducerBytes)); err != nil {
			return err
		}
	}
	if len(s.Files) == 0 {
		return nil
	}
	rows := make([][]string, len(s.Files))
	for i, file := range s.Files {
		holds, name, shared := "keyed state", file.Name, "no"
		if file.Backend != "" {
			holds += ", " + file.Backend
		}
		if file.List != "" {
			holds = "list " + file.List
		}
		if name == "" {
			name = "(inline)"
		}
		if file.Shared {
			shared = fmt.Sprintf("since %d", file.SharedSince)
		}
		of := fmt.Sprintf("%s[%d]", file.Operator, file.Subtask)
		if file.InFlight {
			of, holds = "-", "records in flight"
		}
		rows[i] = []string{name, of, holds, showBytes(file.Bytes), file.CRC32C, shared, showText(file.Problem)}
	}
	if err := c.say("\n"); err != nil {
		return err
	}
	return c.table([]string{"FILE", "OPERATOR", "HOLDS", "SIZE", "CRC32C", "SHARED", "PROBLEM"}, rows)
}

func (c *cli) printOperator(op cliresult.InspectedOperator) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\noperator %s: parallelism %d of at most %d, %s\n", op.UID, op.Parallelism, op.MaxParallelism, showBytes(op.Bytes))
	if op.Ended > 0 {
		fmt.Fprintf(&text, "  ended: %d of %d subtasks had seen the end of their input\n", op.Ended, op.Parallelism)
	}
	for _, state := range op.States {
		counted := ""
		if !state.Complete {
			counted = " (incomplete: a file could not be read)"
		}
		fmt.Fprintf(&text, "  %s state %s: %d entries, %s%s\n", state.Kind, state.Name, state.Entries, showBytes(state.Bytes), counted)
		fmt.Fprintf(&text, "    key %s\n    value %s as %s\n", state.KeySchema, state.Codec, state.Schema)
		for _, e := range state.Earlier {
			fmt.Fprintf(&text, "    earlier values %s as %s\n", e.Codec, e.Schema)
		}
		fmt.Fprintf(&text, "    key groups: %d used, mean %.1f entries, most %d in group %d\n",
			state.KeyGroups.Used, state.KeyGroups.Mean, state.KeyGroups.Most, state.KeyGroups.Largest)
		fmt.Fprintf(&text, "    subtasks: %s entries\n", strings.Trim(fmt.Sprint(state.SubtaskEntries), "[]"))
	}
	for _, list := range op.Lists {
		fmt.Fprintf(&text, "  list %s: %d elements, %s, %s\n", list.Name, list.Elements, showBytes(list.Bytes), list.Redistribution)
		if list.Codec != "" {
			fmt.Fprintf(&text, "    element %s as %s\n", list.Codec, list.Schema)
		}
	}
	for _, m := range op.Broadcast {
		fmt.Fprintf(&text, "  broadcast map %s: %d entries, %s\n    key %s\n    value %s as %s\n",
			m.Name, m.Entries, showBytes(m.Bytes), m.KeySchema, m.Codec, m.Schema)
	}
	if op.PendingCommittables > 0 {
		fmt.Fprintf(&text, "  pending committables: %d\n", op.PendingCommittables)
	}
	if op.Splits != nil {
		complete := "more may come"
		if op.Splits.Complete {
			complete = "complete"
		}
		fmt.Fprintf(&text, "  splits: %d, %s\n", len(op.Splits.Splits), complete)
		for i, split := range op.Splits.Splits {
			shown := split.Text
			if split.Hex != "" {
				shown = "0x" + split.Hex
			}
			fmt.Fprintf(&text, "    %d: %s\n", i, shown)
		}
	}
	return c.say("%s", text.String())
}
