package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func mustLoad(t *testing.T, content string, overrides ...string) *Config {
	t.Helper()
	c, err := Load(writeFile(t, content), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	for _, c := range []*Config{nil, {}, mustLoad(t, "# nothing\n"), mustLoad(t, "")} {
		if got := CheckpointInterval.Get(c); got != time.Second {
			t.Errorf("checkpoint interval = %v", got)
		}
		if got := HeartbeatTimeout.Get(c); got != 5*time.Second {
			t.Errorf("heartbeat timeout = %v", got)
		}
		if got := CheckpointInlineThreshold.Get(c); got != 20*KiB {
			t.Errorf("inline threshold = %v", got)
		}
		if got := JobManagerBindHost.Get(c); got != "127.0.0.1" {
			t.Errorf("bind host = %v", got)
		}
		if got := RestartStrategy.Get(c); got != ExponentialDelayRestart {
			t.Errorf("restart strategy = %v", got)
		}
		if c.Entries() != nil || CheckpointInterval.IsSet(c) {
			t.Errorf("defaults count as set: %v", c)
		}
	}
}

func TestNestedDottedAndMixedKeysAreTheSame(t *testing.T) {
	for _, content := range []string{
		"execution:\n  checkpointing:\n    interval: 3 s\n    num-retained: 7\n",
		"execution.checkpointing.interval: 3 s\nexecution.checkpointing.num-retained: 7\n",
		"execution:\n  checkpointing.interval: 3s\nexecution.checkpointing:\n  num-retained: '7'\n",
		"{execution: {checkpointing: {interval: 3000, num-retained: 7}}, s3: }\n",
	} {
		c := mustLoad(t, content)
		if CheckpointInterval.Get(c) != 3*time.Second || CheckpointRetained.Get(c) != 7 {
			t.Errorf("%q is read as %v", content, c)
		}
	}
}

func TestOverridesWinAndTheLastOneMost(t *testing.T) {
	c := mustLoad(t, "parallelism.default: 2\n", "parallelism.default=3", "parallelism.default = 4")
	if got := DefaultParallelism.Get(c); got != 4 {
		t.Errorf("parallelism = %d", got)
	}
	next, err := c.With([]string{"parallelism.default=5"})
	if err != nil {
		t.Fatal(err)
	}
	if DefaultParallelism.Get(next) != 5 || DefaultParallelism.Get(c) != 4 {
		t.Errorf("With changed its receiver or not its result: %v, %v", c, next)
	}
}

func TestOlderNamesAreUnderstood(t *testing.T) {
	c := mustLoad(t, "state.checkpoints.dir: /tmp/checkpoints/\nexecution.checkpointing.memory-threshold: 0\n")
	if got := CheckpointDir.Get(c); got != "file:///tmp/checkpoints" {
		t.Errorf("checkpoint directory = %q", got)
	}
	if got := CheckpointInlineThreshold.Get(c); got != 0 {
		t.Errorf("inline threshold = %v", got)
	}
	if entries := c.Entries(); len(entries) != 2 || entries[0].Key != "execution.checkpointing.data-inline-threshold" {
		t.Errorf("entries keep the older names: %v", entries)
	}
}

func TestMistakesNameKeyPlaceAndRemedy(t *testing.T) {
	const secret = "hunter2"
	for _, test := range []struct {
		name, content string
		overrides     []string
		want          string // FILE stands for the file's name
	}{
		{"unknown key", "a: 1\n", nil, "FILE:1: a: is not a configuration key; the nearest is "},
		{"mistyped key", "\nexecution:\n  checkpointing:\n    intervall: 1 s\n", nil,
			"FILE:4: execution.checkpointing.intervall: is not a configuration key; the nearest is execution.checkpointing.interval"},
		{"mistyped override", "", []string{"taskmanager.numberOfSlots=3"},
			"-D: taskmanager.numberOfSlots: is not a configuration key; the nearest is taskmanager.numberOfTaskSlots"},
		{"last part alone", "", []string{"numberOfTaskSlots=3"}, "the nearest is taskmanager.numberOfTaskSlots"},
		{"other case", "", []string{"Parallelism.Default=3"}, "the nearest is parallelism.default"},
		{"out of range", "taskmanager:\n  numberOfTaskSlots: 0\n", nil,
			`FILE:2: taskmanager.numberOfTaskSlots: "0" is not allowed: use 1 to 1024`},
		{"duration out of range", "", []string{"heartbeat.interval=2 h"},
			`-D: heartbeat.interval: "2 h" is not allowed: use 10 ms to 1 h`},
		{"no number", "", []string{"parallelism.default=many"}, `-D: parallelism.default: "many" is not a whole number`},
		{"no duration", "", []string{"heartbeat.interval=1 parsec"}, `-D: heartbeat.interval: "1 parsec" is not a duration: use`},
		{"negative duration", "", []string{"heartbeat.interval=-1s"}, `is not a duration`},
		{"memory unit", "", []string{"blob.max-size=1 kilo"}, `-D: blob.max-size: "1 kilo" has the unknown unit "kilo"`},
		{"enum", "", []string{"restart-strategy.type=never"},
			`"never" is not allowed: use exponential-delay, fixed-delay, none`},
		{"bool", "", []string{"s3.path-style-access=yes"}, `"yes" is not true or false`},
		{"unaligned at least once", "execution.checkpointing.mode: AT_LEAST_ONCE\n", []string{"execution.checkpointing.unaligned=true"},
			"-D: execution.checkpointing.unaligned.enabled: execution.checkpointing.unaligned.enabled is true and execution.checkpointing.mode is " +
				"AT_LEAST_ONCE, which never waits for an alignment: set the first to false, or the second to EXACTLY_ONCE"},
		{"several unaligned at once", "", []string{"execution.checkpointing.max-concurrent-checkpoints=2", "execution.checkpointing.unaligned.enabled=true"},
			"execution.checkpointing.unaligned.enabled is true and execution.checkpointing.max-concurrent-checkpoints is 2: " +
				"unaligned checkpoints are taken one at a time; set the first to false, or the second to 1"},
		{"scheme", "", []string{"execution.checkpointing.dir=hdfs://a/b"}, `has the unknown scheme "hdfs": use file or s3`},
		{"relative directory", "", []string{"execution.checkpointing.dir=checkpoints"}, "is not a storage directory: use"},
		{"bucket missing", "", []string{"execution.checkpointing.dir=s3://"}, "is not a storage directory: use"},
		{"ports", "", []string{"taskmanager.data.port=90-80"}, `is not a port or a range of ports`},
		{"host with port", "", []string{"taskmanager.host=a:1"}, `is not a host name or address without port`},
		{"cluster ID", "", []string{"high-availability.cluster-id=../a"}, "is not allowed: use letters"},
		{"no equals sign", "", []string{"parallelism.default"}, "-D: parallelism.default: give it as key=value"},
		{"set twice", "s3.endpoint: a\ns3:\n  endpoint: b\n", nil, "FILE:3: s3.endpoint: is set twice, first at FILE:1"},
		{"set twice by an older name", "state.checkpoints.dir: /a\nexecution.checkpointing.dir: /b\n", nil, "is set twice, first at FILE:1"},
		{"no value", "s3.endpoint:\n", nil, `FILE:1: s3.endpoint: has no value; write "" for an empty one`},
		{"list", "s3.endpoint: [a]\n", nil, "FILE:1: s3.endpoint: has a list or an alias"},
		{"value above a key", "s3: 3\n", nil, "FILE:1: s3: is not a configuration key"},
		{"no mapping", "- a\n", nil, "FILE:1: is not a mapping of keys to values"},
		{"two documents", "s3.endpoint: a\n---\ns3.endpoint: b\n", nil, "holds more than one YAML document"},
		{"no YAML", "a: b: c\n", nil, "FILE: yaml: "},
		{"contradiction", "heartbeat:\n  interval: 10 s\n", nil,
			"FILE:2: heartbeat.interval: heartbeat.timeout is 5 s and heartbeat.interval 10 s: the time-out has to be at least 2 intervals"},
		{"secret without its key", "", []string{"=" + secret}, "-D: : give it as key=value"},
		{"backoffs", "", []string{"restart-strategy.exponential-delay.max-backoff=1ms"}, "the initial backoff is 1 s"},
		{"parallelism", "", []string{"parallelism.default=129"}, "is larger than pipeline.max-parallelism"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := writeFile(t, test.content)
			_, err := Load(file, test.overrides)
			if err == nil {
				t.Fatal("no error")
			}
			if want := strings.ReplaceAll(test.want, "FILE", file); !strings.Contains(err.Error(), want) {
				t.Errorf("error is\n%v\nand lacks\n%s", err, want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "absent.yaml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Load(writeFile(t, strings.Repeat("#", fileBytesMax+1)), nil); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("endless file: %v", err)
	}
}

func TestOptionsOfTheClusterCannotBeSetForAJob(t *testing.T) {
	_, err := (*Config)(nil).WithJob([]string{"heartbeat.interval=1 s"})
	var keyError *KeyError
	if !errors.As(err, &keyError) || keyError.Key != "heartbeat.interval" || !strings.Contains(keyError.Problem, "belongs to the cluster") {
		t.Errorf("error is %v", err)
	}
	c, err := (*Config)(nil).WithJob([]string{"slot.request.timeout=3s"})
	if err != nil || SlotRequestTimeout.Get(c) != 3*time.Second {
		t.Errorf("%v, %v", c, err)
	}
}

func TestMapMakesTheSameConfigElsewhere(t *testing.T) {
	c := mustLoad(t, "s3: {access-key: me, secret-key: hunter2}\n", "parallelism.default=3", "execution.checkpointing.dir=/a/")
	other, err := FromMap(c.Map())
	if err != nil {
		t.Fatal(err)
	}
	if S3SecretKey.Get(other) != "hunter2" || DefaultParallelism.Get(other) != 3 || CheckpointDir.Get(other) != "file:///a" {
		t.Errorf("%v became %v", c.Map(), other.Map())
	}
	if _, err := FromMap(map[string]string{"nonsense": "1"}); err == nil || !strings.HasPrefix(err.Error(), "configuration received: nonsense: ") {
		t.Errorf("unknown key received: %v", err)
	}
}

func TestPrintingMasksSecrets(t *testing.T) {
	c := mustLoad(t, "s3: {access-key: me, secret-key: hunter2}\n")
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(form, c)
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "s3.secret-key=******") {
			t.Errorf("%s prints %s", form, text)
		}
	}
}

func TestShippedFileLoadsAndOnlyRepeatsWhatItSays(t *testing.T) {
	c, err := Load("../../conf/config.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := TaskManagerSlots.Get(c); got != 2 {
		t.Errorf("slots = %d", got)
	}
}
