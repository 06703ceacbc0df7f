package checkpointstore

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
)

const (
	jobA = ids.JobID("a1b2c3d4e5f60718293a4b5c6d7e8f90")
	jobB = ids.JobID("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
)

// The names of stored objects never change: another version must find them.
func TestNamesGolden(t *testing.T) {
	file := StateFile{Attempt: ids.AttemptID{Token: 3, Number: 1}, Subtask: ids.SubtaskID{Vertex: 2, Index: 0}, Seq: 5}
	for _, test := range []struct{ got, want string }{
		{file.String(), "3.1-2.0.5"},
		{CheckpointLocation("/data", jobA, 7).URI(), "/data/a1b2c3d4e5f60718293a4b5c6d7e8f90/chk-7"},
		{CheckpointLocation("/data/", jobA, 7).Base, "/data/a1b2c3d4e5f60718293a4b5c6d7e8f90"},
		{CheckpointLocation("/data", jobA, 7).name(file.String()), "chk-7/3.1-2.0.5"},
		{CheckpointLocation("s3://bucket", jobA, 7).URI(), "s3://bucket/a1b2c3d4e5f60718293a4b5c6d7e8f90/chk-7"},
		{CheckpointLocation("file:///", jobA, 7).URI(), "file:///a1b2c3d4e5f60718293a4b5c6d7e8f90/chk-7"},
		{SavepointLocation("/sp", jobA, 12).URI(), "/sp/savepoint-" + string(jobA) + "-12"},
		{SavepointLocation("/sp", jobA, 12).Base, "/sp/savepoint-" + string(jobA) + "-12"},
		{SavepointLocation("/sp", jobA, 12).name(metadataName), "_metadata"},
		{SavepointAt("s3://bucket/sp/mine/").URI(), "s3://bucket/sp/mine"},
		{ClusterURI("/ha", "default"), "/ha/default"},
		{jobObject(jobA, recordName), "jobs/a1b2c3d4e5f60718293a4b5c6d7e8f90/record"},
		{jobObject(jobA, jobName), "jobs/a1b2c3d4e5f60718293a4b5c6d7e8f90/job"},
	} {
		if test.got != test.want {
			t.Errorf("got %s, want %s", test.got, test.want)
		}
	}
}

func TestLocationOf(t *testing.T) {
	for uri, want := range map[string]Location{
		"/d/job/chk-7":                {Base: "/d/job", Dir: "chk-7"},
		"/d/job/chk-7/":               {Base: "/d/job", Dir: "chk-7"},
		"/d/job/chk-7/_metadata":      {Base: "/d/job", Dir: "chk-7"},
		"s3://b/job/chk-7":            {Base: "s3://b/job", Dir: "chk-7"},
		"/sp/savepoint-a-7":           {Base: "/sp/savepoint-a-7"},
		"/sp/savepoint-a-7/_metadata": {Base: "/sp/savepoint-a-7"},
		"/sp/chk-07":                  {Base: "/sp/chk-07"},
	} {
		if got := LocationOf(uri); got != want {
			t.Errorf("%s gave %+v, want %+v", uri, got, want)
		}
	}
}

func TestSplitURI(t *testing.T) {
	for uri, want := range map[string][2]string{
		"/a/b":       {"/a", "b"},
		"/a":         {"/", "a"},
		"/a/b/":      {"/a", "b"},
		"s3://b/x":   {"s3://b", "x"},
		"s3://b/x/y": {"s3://b/x", "y"},
		"file:///a":  {"file:///", "a"},
		"mem://x/y":  {"mem://x", "y"},
	} {
		parent, last, ok := splitURI(uri)
		if !ok || parent != want[0] || last != want[1] {
			t.Errorf("%s gave %s, %s, %v", uri, parent, last, ok)
		}
		if got := joinURI(parent, last); got != trimURI(uri) {
			t.Errorf("%s joined again is %s", uri, got)
		}
	}
	for _, uri := range []string{"/", "s3://b", "s3://b/", "file:///", ""} {
		if parent, last, ok := splitURI(uri); ok {
			t.Errorf("%q was split into %q and %q", uri, parent, last)
		}
	}
}

func TestStateFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		file := StateFile{
			Attempt: ids.AttemptID{Token: ids.FencingToken(rapid.Uint64().Draw(t, "token")), Number: rapid.Uint32().Draw(t, "number")},
			Subtask: ids.SubtaskID{Vertex: ids.VertexID(rapid.Int32Min(0).Draw(t, "vertex")), Index: rapid.Int32Min(0).Draw(t, "index")},
			Seq:     rapid.Uint32().Draw(t, "seq"),
		}
		got, ok := parseStateFile(file.String())
		if !ok || got != file {
			t.Fatalf("%s was read as %+v, %v", file, got, ok)
		}
	})
	for _, name := range []string{"", "_metadata", "3.1", "3.1-2.0", "3.1-2.0.5.6", "03.1-2.0.5", "3.1-2.0.5x", "3.1-+2.0.5", "x-1.1.1"} {
		if file, ok := parseStateFile(name); ok {
			t.Errorf("%q was read as %+v", name, file)
		}
	}
	for _, name := range []string{"chk-", "chk-x", "chk-07", "chk--1", "savepoint-1", "chk-99999999999999999999"} {
		if id, ok := parseCheckpointDir(name); ok {
			t.Errorf("%q was read as %d", name, id)
		}
	}
}
