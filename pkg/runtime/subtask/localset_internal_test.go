package subtask

import (
	"reflect"
	"testing"
)

// FuzzLocalSet: what a directory of local recovery says of its files is read as
// it was written, or not at all.
func FuzzLocalSet(f *testing.F) {
	f.Add(string(encodeLocalSet([]localFile{{name: "shared/1.1/7-0.0.0", size: 3, crc: 0xfe, isCopy: true}, {name: "chk-9/1.1-0.0.1"}})))
	f.Add("end\n")
	f.Add("1 00000000 link \nend\n")
	f.Fuzz(func(t *testing.T, content string) {
		files, ok := parseLocalSet(content)
		if !ok {
			if files != nil {
				t.Fatalf("%q is refused, and has files", content)
			}
			return
		}
		if again, ok := parseLocalSet(string(encodeLocalSet(files))); !ok || !reflect.DeepEqual(again, files) {
			t.Fatalf("%+v is written and read as %+v", files, again)
		}
	})
}
