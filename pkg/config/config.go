package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Config is an immutable set of option values. Read it through the options:
// config.CheckpointInterval.Get(c). The zero value and nil hold all defaults.
type Config struct {
	values map[string]value
}

// value is one option's value.
type value struct {
	text   string
	parsed any
	origin origin
}

// origin says where a value stood: "conf/config.yaml:12" or "-D".
type origin string

// overrideOrigin is the origin of everything that came by -D.
const overrideOrigin origin = "-D"

// mapOrigin is the origin of what another process handed on.
const mapOrigin origin = "configuration received"

// mask stands for secret values in everything that is printed.
const mask = "******"

// KeyError says what is wrong with one key.
type KeyError struct {
	// Origin is where it stood: "FILE:LINE" or "-D".
	Origin string
	// Key is the key as it was written.
	Key string
	// Problem says what is wrong and what would be right. It never holds a secret.
	Problem string
}

// Error prints origin, key and problem.
func (e *KeyError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Origin, e.Key, e.Problem) }

// With returns a Config with each override, "key=value", set over c. The last
// of several for one key wins. It is how the mains apply -D. The error is a *KeyError.
func (c *Config) With(overrides []string) (*Config, error) {
	return c.override(overrides, ClusterScope, JobScope)
}

// WithJob is With for the overrides of a submission: options of the cluster are refused.
func (c *Config) WithJob(overrides []string) (*Config, error) {
	return c.override(overrides, JobScope)
}

func (c *Config) override(overrides []string, scopes ...Scope) (*Config, error) {
	next := c.clone()
	for _, override := range overrides {
		key, text, ok := strings.Cut(override, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			// The text may be a secret that lost its key: it is not repeated.
			return nil, &KeyError{Origin: string(overrideOrigin), Key: key, Problem: "give it as key=value"}
		}
		if err := next.set(key, strings.TrimSpace(text), overrideOrigin, scopes...); err != nil {
			return nil, err
		}
	}
	if err := next.checkTogether(); err != nil {
		return nil, err
	}
	return next, nil
}

// FromMap makes a Config of what Map returned, here or in another process.
// The error is a *KeyError.
func FromMap(entries map[string]string) (*Config, error) {
	c := &Config{values: map[string]value{}}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := c.set(key, entries[key], mapOrigin, ClusterScope, JobScope); err != nil {
			return nil, err
		}
	}
	if err := c.checkTogether(); err != nil {
		return nil, err
	}
	return c, nil
}

// Map returns the values that are set, by key, with secrets in clear text. It
// is the caller's to change.
func (c *Config) Map() map[string]string {
	entries := map[string]string{}
	if c != nil {
		for key, set := range c.values {
			entries[key] = set.text
		}
	}
	return entries
}

// Entry is one key with its value as text.
type Entry struct{ Key, Value string }

// Entries returns the values that are set, sorted by key, fit to be shown:
// secrets are masked.
func (c *Config) Entries() []Entry {
	var entries []Entry
	if c == nil {
		return entries
	}
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		text := c.values[key].text
		if registered[key].secret {
			text = mask
		}
		entries = append(entries, Entry{Key: key, Value: text})
	}
	return entries
}

// String prints the values that are set, sorted by key, with secrets masked.
func (c *Config) String() string {
	parts := make([]string, 0)
	for _, entry := range c.Entries() {
		parts = append(parts, entry.Key+"="+entry.Value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// GoString is String, so that no way of printing shows a secret.
func (c *Config) GoString() string { return c.String() }

func (c *Config) clone() *Config {
	next := &Config{values: map[string]value{}}
	if c != nil {
		maps.Copy(next.values, c.values)
	}
	return next
}

// set parses and stores one value. It changes c and is therefore only called
// while c is being built.
func (c *Config) set(name, text string, from origin, scopes ...Scope) error {
	d, err := lookUp(name, from)
	if err != nil {
		return err
	}
	if !slices.Contains(scopes, d.scope) {
		return &KeyError{Origin: string(from), Key: name, Problem: "belongs to the cluster and cannot be set for one job: " +
			"put it into the cluster's configuration"}
	}
	parsed, err := d.parseAny(text)
	if err != nil {
		shown := fmt.Sprintf("%q", text)
		if d.secret {
			shown = "the value"
		}
		return &KeyError{Origin: string(from), Key: name, Problem: shown + " " + err.Error()}
	}
	c.values[d.key] = value{text: text, parsed: parsed, origin: from}
	return nil
}

// lookUp finds the option of a key or of an older name of one.
func lookUp(name string, from origin) (*definition, error) {
	if key, ok := keyOfAlias[name]; ok {
		name = key
	}
	if d, ok := registered[name]; ok {
		return d, nil
	}
	return nil, &KeyError{Origin: string(from), Key: name, Problem: fmt.Sprintf("is not a configuration key; the nearest is %s", nearestKey(name))}
}

// rule is a condition between several options.
type rule struct {
	// keys are the options that it reads: what is wrong is reported at the first that is set.
	keys  []string
	check func(c *Config) (problem string)
}

func (c *Config) checkTogether() error {
	for _, r := range rules {
		text := r.check(c)
		if text == "" {
			continue
		}
		for _, key := range r.keys {
			if set, ok := c.values[key]; ok {
				return &KeyError{Origin: string(set.origin), Key: key, Problem: text}
			}
		}
		panic(fmt.Sprintf("config: defaults of %v contradict each other: %s", r.keys, text))
	}
	return nil
}
