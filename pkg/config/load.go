package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// fileBytesMax bounds the file that Load reads: a configuration has some
// hundred lines, so a larger file is not one.
const fileBytesMax = 1 << 20

// Load reads the YAML file and sets the overrides, "key=value", over it. An
// empty file name stands for no file. What is wrong with the content or an
// override is a *KeyError where a key is to blame.
func Load(file string, overrides []string) (*Config, error) {
	c := &Config{values: map[string]value{}}
	if file != "" {
		content, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		if err := c.setYAML(file, content); err != nil {
			return nil, err
		}
	}
	// Overrides may repair what contradicts each other in the file, so it is checked behind them only.
	return c.With(overrides)
}

func readFile(name string) (content []byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	content, err = io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(content) > fileBytesMax {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, fileBytesMax)
	}
	return content, nil
}

// setYAML sets the values of a YAML document. Keys may be nested, written out
// with dots, or both: "a: {b.c: 1}" is a.b.c.
func (c *Config) setYAML(file string, content []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil // nothing but comments
	} else if err != nil {
		return fmt.Errorf("read configuration: %s: %w", file, err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read configuration: %s: holds more than one YAML document", file)
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("read configuration: %s:%d: is not a mapping of keys to values", file, root.Line)
	}
	return c.setMapping(file, "", root)
}

func (c *Config) setMapping(file, prefix string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		from := origin(fmt.Sprintf("%s:%d", file, key.Line))
		switch node.Kind {
		case yaml.MappingNode:
			if err := c.setMapping(file, name+".", node); err != nil {
				return err
			}
		case yaml.ScalarNode:
			if err := c.setScalar(name, node, from); err != nil {
				return err
			}
		case yaml.SequenceNode, yaml.AliasNode, yaml.DocumentNode:
			return &KeyError{Origin: string(from), Key: name, Problem: "has a list or an alias where a plain value belongs"}
		}
	}
	return nil
}

func (c *Config) setScalar(name string, node *yaml.Node, from origin) error {
	if node.Tag == "!!null" {
		// "s3:" with everything below it commented out is no mistake, a key without a value is.
		if registered[name] == nil && isPrefix(name) {
			return nil
		}
		if _, err := lookUp(name, from); err != nil {
			return err
		}
		return &KeyError{Origin: string(from), Key: name, Problem: `has no value; write "" for an empty one`}
	}
	d, err := lookUp(name, from)
	if err != nil {
		return err
	}
	if earlier, ok := c.values[d.key]; ok {
		return &KeyError{Origin: string(from), Key: name, Problem: fmt.Sprintf("is set twice, first at %s", earlier.origin)}
	}
	return c.set(name, node.Value, from, ClusterScope, JobScope)
}

// isPrefix reports whether known keys continue name with a dot.
func isPrefix(name string) bool {
	for key := range registered {
		if len(key) > len(name) && key[:len(name)] == name && key[len(name)] == '.' {
			return true
		}
	}
	return false
}
