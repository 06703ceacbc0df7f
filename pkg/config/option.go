package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scope says who may set an option.
type Scope int

const (
	// ClusterScope options belong to the cluster's processes and are read when these start.
	ClusterScope Scope = iota
	// JobScope options may be given for one job when it is submitted; the
	// cluster's configuration holds the values of jobs that do not.
	JobScope
)

// String names the scope as docs/CONFIG.md does.
func (s Scope) String() string {
	switch s {
	case ClusterScope:
		return "cluster"
	case JobScope:
		return "job"
	}
	panic(fmt.Sprintf("config: unknown scope %d", int(s)))
}

// Option is one configuration key whose values have type T.
type Option[T any] struct {
	definition *definition
	parse      func(text string) (T, error)
	byDefault  T
}

// Key returns the option's name in files and in -D.
func (o Option[T]) Key() string { return o.definition.key }

// Default returns the value of the option where nothing sets it.
func (o Option[T]) Default() T { return o.byDefault }

// Get returns the option's value in c. A nil c has all defaults.
func (o Option[T]) Get(c *Config) T {
	if c == nil {
		return o.byDefault
	}
	if set, ok := c.values[o.definition.key]; ok {
		return set.parsed.(T)
	}
	return o.byDefault
}

// IsSet reports whether c holds a value for the option, be it the default's.
func (o Option[T]) IsSet(c *Config) bool {
	if c == nil {
		return false
	}
	_, ok := c.values[o.definition.key]
	return ok
}

// definition is the part of an Option that does not depend on its type.
type definition struct {
	key string
	// aliases are older names of the key that people know from Flink 1.
	aliases []string
	scope   Scope
	// secret values are masked wherever a Config is printed.
	secret bool
	doc    string

	typeName    string
	defaultText string
	// allowed describes the values, for errors and for docs/CONFIG.md; empty if anything goes.
	allowed string
	// parseAny reads and checks a value. Its error says what is wrong, without the key.
	parseAny func(text string) (any, error)
}

// registered holds every option by key. It is filled while the package's
// variables are initialised and only read afterwards.
var registered = map[string]*definition{}

// keyOfAlias maps the older names to the keys.
var keyOfAlias = map[string]string{}

// settings is what the declaration of an option gives besides type and default.
type settings struct {
	key     string
	aliases []string
	scope   Scope
	secret  bool
	doc     string
}

// register makes the Option. defaultText goes through parse, so that a
// default outside its own range stops the program at once.
func register[T any](s settings, typeName, defaultText, allowed string, parse func(string) (T, error)) Option[T] {
	byDefault, err := parse(defaultText)
	if err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", s.key, err))
	}
	for _, name := range append([]string{s.key}, s.aliases...) {
		if registered[name] != nil || keyOfAlias[name] != "" {
			panic(fmt.Sprintf("config: %s is declared twice", name))
		}
	}
	d := &definition{
		key: s.key, aliases: s.aliases, scope: s.scope, secret: s.secret, doc: s.doc,
		typeName: typeName, defaultText: defaultText, allowed: allowed,
		parseAny: func(text string) (any, error) { return parse(text) },
	}
	registered[s.key] = d
	for _, alias := range s.aliases {
		keyOfAlias[alias] = s.key
	}
	return Option[T]{definition: d, parse: parse, byDefault: byDefault}
}

func stringOption(s settings, defaultText string) Option[string] {
	return register(s, "string", defaultText, "", func(text string) (string, error) { return text, nil })
}

// hostOption is a name or address without a port.
func hostOption(s settings, defaultText string) Option[string] {
	return register(s, "host", defaultText, "a host name or address without port", func(text string) (string, error) {
		if text == "" || strings.ContainsAny(text, "/ \t\n") || strings.Count(text, ":") == 1 {
			return "", problem("is not a host name or address without port")
		}
		return text, nil
	})
}

func boolOption(s settings, defaultText string) Option[bool] {
	return register(s, "bool", defaultText, "true, false", func(text string) (bool, error) {
		switch strings.ToLower(text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return false, problem("is not true or false")
	})
}

func intOption(s settings, defaultText string, least, most int) Option[int] {
	allowed := fmt.Sprintf("%d to %d", least, most)
	return register(s, "int", defaultText, allowed, func(text string) (int, error) {
		value, err := parseInt(text)
		if err != nil {
			return 0, err
		}
		if value < int64(least) || value > int64(most) {
			return 0, outOfRange(allowed)
		}
		return int(value), nil
	})
}

func floatOption(s settings, defaultText string, least, most float64) Option[float64] {
	allowed := fmt.Sprintf("%g to %g", least, most)
	return register(s, "float", defaultText, allowed, func(text string) (float64, error) {
		value, err := parseFloat(text)
		if err != nil {
			return 0, err
		}
		// Written so that NaN fails too.
		if !(value >= least && value <= most) {
			return 0, outOfRange(allowed)
		}
		return value, nil
	})
}

func durationOption(s settings, defaultText string, least, most time.Duration) Option[time.Duration] {
	allowed := FormatDuration(least) + " to " + FormatDuration(most)
	return register(s, "duration", defaultText, allowed, func(text string) (time.Duration, error) {
		value, err := ParseDuration(text)
		if err != nil {
			return 0, err
		}
		if value < least || value > most {
			return 0, outOfRange(allowed)
		}
		return value, nil
	})
}

func memoryOption(s settings, defaultText string, least, most MemorySize) Option[MemorySize] {
	allowed := least.String() + " to " + most.String()
	return register(s, "memory size", defaultText, allowed, func(text string) (MemorySize, error) {
		value, err := ParseMemorySize(text)
		if err != nil {
			return 0, err
		}
		if value < least || value > most {
			return 0, outOfRange(allowed)
		}
		return value, nil
	})
}

// enumOption takes its values from a closed set of strings, in any case of letters.
func enumOption[T ~string](s settings, byDefault T, values ...T) Option[T] {
	names := make([]string, len(values))
	for i, value := range values {
		names[i] = string(value)
	}
	allowed := strings.Join(names, ", ")
	return register(s, "enum", string(byDefault), allowed, func(text string) (T, error) {
		i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) })
		if i < 0 {
			return "", outOfRange(allowed)
		}
		return values[i], nil
	})
}

// problem is what is wrong with a value, to be put behind it: "… is not a number".
type problem string

func (p problem) Error() string { return string(p) }

func outOfRange(allowed string) error { return problem("is not allowed: use " + allowed) }
