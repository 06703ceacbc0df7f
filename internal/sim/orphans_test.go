package sim

import (
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
)

// What is written into a savepoint that was given up may stay only if somebody
// looked there when its attempt had ended, and it came later.
func TestSavepointsGivenUpAreNotBeyondSweeps(t *testing.T) {
	const job = ids.JobID("00000000000000000000000000000001")
	uri := checkpointstore.SavepointLocation(savepointDir, job, 7).URI()
	name := objectName(uri) + "/1.1-0.0.0"
	for what, test := range map[string]struct {
		sweptAt time.Duration // 0 for never since its attempt has ended
		token   ids.FencingToken
		beyond  bool
	}{
		"nobody has looked again":      {0, 1, false},
		"somebody looked later":        {20, 1, false},
		"it came too late":             {5, 1, true},
		"of a JobManager that is gone": {0, 2, true},
	} {
		c := &cluster{checks: newChecks()}
		c.checks.triggered[checkpointName{job, 7}] = triggered{token: 1}
		c.checks.records[job] = checkpointstore.JobRecord{Token: test.token}
		c.checks.written[name] = 10
		if test.sweptAt != 0 {
			c.checks.swept[uri] = test.sweptAt
		}
		if got := c.isBeyondSweeps(name); got != test.beyond {
			t.Errorf("%s: beyond all sweeps is %t", what, got)
		}
	}
}
