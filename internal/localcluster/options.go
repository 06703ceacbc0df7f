package localcluster

import (
	"fmt"
	"slices"
)

// Options say what cluster to start. What is nil takes the value that the
// directory's cluster had, or the default.
type Options struct {
	// Dir is the cluster's directory. It is made if need be.
	Dir string
	// TaskManagers is the number of TaskManagers (default 1), Slots that of
	// each one's slots (default 2).
	TaskManagers, Slots *int
	// S3 adds an S3 server, which then holds checkpoints and savepoints.
	S3 *bool
	// Overrides are configuration as "key=value"; nil takes the recorded ones.
	Overrides []string
	// Programs is the directory of the binaries jobmanager and taskmanager.
	Programs string
	// S3Server is the path of versitygw; only asked for when one has to be started.
	S3Server func() (string, error)
	// Registered asks a JobManager for its TaskManagers.
	Registered Registered
	// Progress is told what happens, in one line each.
	Progress func(line string)
}

const (
	defaultTaskManagers = 1
	defaultSlots        = 2
	// taskManagersMax and slotsMax keep a slip of the finger from taking the host down.
	taskManagersMax = 64
	slotsMax        = 1024
)

// ConflictError says that a cluster runs with other settings than asked for.
type ConflictError struct{ Message string }

// Error returns the message.
func (e *ConflictError) Error() string { return e.Message }

// OptionError says that an option has a value that no cluster can have.
type OptionError struct{ Message string }

// Error returns the message.
func (e *OptionError) Error() string { return e.Message }

// merge sets what was asked for in the record. A running cluster may gain
// TaskManagers; everything else needs it to be stopped first.
func (r *record) merge(o Options, running bool) error {
	if err := mergeNumber(&r.TaskManagers, o.TaskManagers, "--taskmanagers", taskManagersMax, func(was, now int) bool {
		return running && now < was
	}); err != nil {
		return err
	}
	if err := mergeNumber(&r.Slots, o.Slots, "--slots", slotsMax, func(was, now int) bool {
		return running && now != was
	}); err != nil {
		return err
	}
	if o.S3 != nil && *o.S3 != r.S3 {
		if running {
			return &ConflictError{Message: fmt.Sprintf("the cluster runs with --s3=%v", r.S3)}
		}
		r.S3 = *o.S3
	}
	if o.Overrides != nil && !slices.Equal(o.Overrides, r.Overrides) {
		if running {
			// The values are not repeated: there may be secrets among them.
			return &ConflictError{Message: "the cluster runs with other -D settings"}
		}
		r.Overrides = slices.Clone(o.Overrides)
	}
	return nil
}

func mergeNumber(recorded, asked *int, flag string, most int, conflicts func(was, now int) bool) error {
	switch {
	case asked == nil:
		return nil
	case *asked < 1 || *asked > most:
		return &OptionError{Message: fmt.Sprintf("%s is %d: give 1 to %d", flag, *asked, most)}
	case conflicts(*recorded, *asked):
		return &ConflictError{Message: fmt.Sprintf("the cluster runs with %s %d", flag, *recorded)}
	}
	*recorded = *asked
	return nil
}
