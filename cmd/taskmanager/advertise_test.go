package main

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/pkg/config"
)

func TestAdvertisedHost(t *testing.T) {
	named := func() (string, error) { return "c0ffee", nil }
	for _, test := range []struct {
		overrides []string
		want      string
	}{
		{nil, "127.0.0.1"},
		{[]string{"taskmanager.bind-host=0.0.0.0"}, "c0ffee"},
		{[]string{"taskmanager.bind-host=::"}, "c0ffee"},
		{[]string{"taskmanager.bind-host=10.0.0.7"}, "127.0.0.1"},
		{[]string{"taskmanager.bind-host=0.0.0.0", "taskmanager.host=10.0.0.7"}, "10.0.0.7"},
	} {
		c, err := config.Load("", test.overrides)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = advertise(c, named); err != nil || config.TaskManagerHost.Get(c) != test.want {
			t.Errorf("%v: host is %s, %v; want %s", test.overrides, config.TaskManagerHost.Get(c), err, test.want)
		}
	}
	c, err := config.Load("", []string{"taskmanager.bind-host=0.0.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = advertise(c, func() (string, error) { return "", errors.New("no name") }); err == nil {
		t.Error("a host without a name was advertised")
	}
}
