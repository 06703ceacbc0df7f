package main

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/stream"
)

type words []string

// Collect implements stream.Collector.
func (w *words) Collect(c Count) error {
	*w = append(*w, fmt.Sprintf("%s=%d", c.Word, c.Count))
	return nil
}

func TestSplit(t *testing.T) {
	var got words
	if err := split("The river; the RIVER'S\tbed — 3 m.", &got); err != nil {
		t.Fatal(err)
	}
	if want := "[the=1 river=1 the=1 river's=1 bed=1 3=1 m=1]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestBuild(t *testing.T) {
	for _, dir := range []string{"", "words"} {
		*output = dir
		env := stream.NewEnv("wordcount")
		if err := build(env); err != nil {
			t.Fatal(err)
		}
		p, err := env.Build()
		if err != nil {
			t.Fatal(err)
		}
		if sink, _ := p.Graph.Operator("out"); sink.TwoPhase != (dir != "") {
			t.Errorf("with --output %q the sink is %+v", dir, sink)
		}
	}
}
