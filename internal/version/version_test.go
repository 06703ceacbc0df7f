package version

import "testing"

func TestString(t *testing.T) {
	if got := String(); got == "" {
		t.Error("a build without a stamp has no version")
	}
	t.Cleanup(func() { stamp = "" })
	stamp = "v1.2.3"
	if got := String(); got != "v1.2.3" {
		t.Errorf("version is %q in spite of the stamp", got)
	}
}
