package objectstore_test

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/memory"
)

func TestSubURI(t *testing.T) {
	root := memory.New("mem://test")
	for uri, want := range map[string]string{
		"mem://test":      "mem://test/x",
		"mem://test/":     "mem://test/x",
		"mem://test/a/b":  "mem://test/a/b/x",
		"mem://test/a/b/": "mem://test/a/b/x",
	} {
		store, err := objectstore.SubURI(root, uri)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if got := store.URI("x"); got != want {
			t.Errorf("%s: object has URI %s, want %s", uri, got, want)
		}
	}
	for _, uri := range []string{"", "mem://testing", "mem://other/a", "/test"} {
		if store, err := objectstore.SubURI(root, uri); err == nil {
			t.Errorf("%s was opened as %s", uri, store.URI(""))
		}
	}
}

func TestConditions(t *testing.T) {
	for _, test := range []struct {
		cond     objectstore.Condition
		isValid  bool
		isAbsent bool
		text     string
	}{
		{objectstore.IfAbsent(), true, true, "if-absent"},
		{objectstore.IfMatch("e"), true, false, "if-match e"},
		{objectstore.IfMatch(""), false, false, "invalid condition"},
		{objectstore.Condition{}, false, false, "invalid condition"},
	} {
		if test.cond.IsValid() != test.isValid || test.cond.IsAbsent() != test.isAbsent || test.cond.String() != test.text {
			t.Errorf("%s: valid %v, absent %v, want %+v", test.cond, test.cond.IsValid(), test.cond.IsAbsent(), test)
		}
	}
}

func TestErrorKeepsClass(t *testing.T) {
	err := error(&objectstore.Error{Op: "read", URI: "mem://test/x", Err: objectstore.ErrDenied})
	if !errors.Is(err, objectstore.ErrDenied) || err.Error() != "read mem://test/x: access denied" {
		t.Errorf("error is %q", err)
	}
}
