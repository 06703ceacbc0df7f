package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/pkg/objectstore"
)

// Factory returns a new, empty store for one test.
type Factory func(t *testing.T) objectstore.Store

// Options sets the sizes of the suite, which depend on what a store does in pieces.
type Options struct {
	// LargeObject is the size in bytes of the largest object that is put: for
	// S3 more than one part. 0 means 1 MiB.
	LargeObject int
	// SwapRounds is how many rounds of concurrent swaps are run. 0 means 50.
	SwapRounds int
	// ListObjects is how many objects the long listing has: for S3 more than
	// one page. 0 means 50.
	ListObjects int
}

// Run runs the suite over stores that factory makes.
func Run(t *testing.T, factory Factory, options Options) {
	options.LargeObject = orDefault(options.LargeObject, 1<<20)
	options.SwapRounds = orDefault(options.SwapRounds, 50)
	options.ListObjects = orDefault(options.ListObjects, 50)
	s := suite{options: options}
	for _, test := range []struct {
		name string
		run  func(*testing.T, objectstore.Store)
	}{
		{"PutReadOpen", s.putReadOpen},
		{"PutIsAtomic", s.putIsAtomic},
		{"PutReplaces", s.putReplaces},
		{"AbsenceIsNamed", s.absenceIsNamed},
		{"ReadIsBounded", s.readIsBounded},
		{"CreateOnly", s.createOnly},
		{"Swap", s.swap},
		{"OneCreatorWins", s.oneCreatorWins},
		{"OneSwapperWinsEachRound", s.oneSwapperWinsEachRound},
		{"ListOrderAndPrefix", s.listOrderAndPrefix},
		{"ListLong", s.listLong},
		{"ListAndDelete", s.listAndDelete},
		{"DeleteIsIdempotent", s.deleteIsIdempotent},
		{"PutAndDeleteInOneDirectory", s.putAndDeleteInOneDirectory},
		{"DiscardStagedSparesObjects", s.discardStagedSparesObjects},
		{"NamesAreChecked", s.namesAreChecked},
		{"EndedContext", s.endedContext},
		{"ErrorsNameObject", s.errorsNameObject},
		{"Sub", s.sub},
		{"Check", s.check},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, factory(t)) })
	}
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

type suite struct{ options Options }

func (s suite) putReadOpen(t *testing.T, store objectstore.Store) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 70_000, s.options.LargeObject} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		name := fmt.Sprintf("a/b%d", size)
		put(t, store, name, content)
		if got := open(t, store, name); !bytes.Equal(got, content) {
			t.Errorf("Open of %d bytes gave %d, or other ones", size, len(got))
		}
		got, etag, err := store.Read(t.Context(), name, int64(size))
		if err != nil || !bytes.Equal(got, content) || etag == "" {
			t.Errorf("Read of %d bytes gave %d, ETag %q, error %v", size, len(got), etag, err)
		}
	}
}

func (s suite) putIsAtomic(t *testing.T, store objectstore.Store) {
	broken := errors.New("broken on purpose")
	for _, before := range []int{0, 10, s.options.LargeObject} {
		calls := 0
		err := store.Put(t.Context(), "dir/half", func(w io.Writer) error {
			calls++
			if _, err := w.Write(make([]byte, before)); err != nil {
				return err
			}
			mustList(t, store, "", nil)
			return broken
		})
		if !errors.Is(err, broken) || calls != 1 {
			t.Errorf("after %d bytes: Put called write %d times and returned %v, want the error of write", before, calls, err)
		}
		mustList(t, store, "", nil)
		if _, _, err := store.Read(t.Context(), "dir/half", 1<<30); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("after %d bytes: Read returned %v, want ErrNotExist", before, err)
		}
	}
}

func (s suite) putReplaces(t *testing.T, store objectstore.Store) {
	put(t, store, "x", []byte("old"))
	_, old, err := store.Read(t.Context(), "x", 10)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "x", []byte("new"))
	content, etag, err := store.Read(t.Context(), "x", 10)
	if err != nil || string(content) != "new" || etag == old {
		t.Errorf("Read gave %q, ETag %s (before: %s), error %v", content, etag, old, err)
	}
}

func (s suite) absenceIsNamed(t *testing.T, store objectstore.Store) {
	put(t, store, "dir/object", []byte("x"))
	for _, name := range []string{"nothing", "dir", "dir/object/below", "dir/objec"} {
		if _, _, err := store.Read(t.Context(), name, 10); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("Read %s: %v, want ErrNotExist", name, err)
		}
		if reader, err := store.Open(t.Context(), name); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("Open %s: %v, %v, want ErrNotExist", name, reader, err)
		}
	}
}

func (s suite) readIsBounded(t *testing.T, store objectstore.Store) {
	put(t, store, "x", make([]byte, 1000))
	if content, _, err := store.Read(t.Context(), "x", 999); !errors.Is(err, objectstore.ErrTooLarge) {
		t.Errorf("Read of at most 999 bytes gave %d, error %v, want ErrTooLarge", len(content), err)
	}
}

func (s suite) createOnly(t *testing.T, store objectstore.Store) {
	etag, err := store.PutIf(t.Context(), "r/x", []byte("one"), objectstore.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	mustRead(t, store, "r/x", "one", etag)
	for _, content := range []string{"two", "one"} {
		if _, err := store.PutIf(t.Context(), "r/x", []byte(content), objectstore.IfAbsent()); !errors.Is(err, objectstore.ErrPrecondition) {
			t.Errorf("second PutIf %q: %v, want ErrPrecondition", content, err)
		}
	}
	mustRead(t, store, "r/x", "one", etag)
}

func (s suite) swap(t *testing.T, store objectstore.Store) {
	if _, err := store.PutIf(t.Context(), "r/x", []byte("new"), objectstore.IfMatch("0123456789abcdef0123456789abcdef")); !errors.Is(err, objectstore.ErrPrecondition) {
		t.Errorf("PutIf IfMatch of nothing: %v, want ErrPrecondition", err)
	}
	mustList(t, store, "", nil)
	one, err := store.PutIf(t.Context(), "r/x", []byte("one"), objectstore.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	two, err := store.PutIf(t.Context(), "r/x", []byte("two"), objectstore.IfMatch(one))
	if err != nil || two == one {
		t.Fatalf("swap gave ETag %s after %s, error %v", two, one, err)
	}
	mustRead(t, store, "r/x", "two", two)
	if _, err := store.PutIf(t.Context(), "r/x", []byte("three"), objectstore.IfMatch(one)); !errors.Is(err, objectstore.ErrPrecondition) {
		t.Errorf("swap with an old ETag: %v, want ErrPrecondition", err)
	}
	mustRead(t, store, "r/x", "two", two)
	if _, err := store.PutIf(t.Context(), "r/x", nil, objectstore.Condition{}); err == nil {
		t.Error("the zero Condition was accepted")
	}
	mustList(t, store, "", []string{"r/x"})
}

// swappersCount is how many writers race in the tests of concurrent writes.
const swappersCount = 16

// race calls write from many goroutines at once and returns who succeeded;
// every other one must have failed the precondition.
func race(t *testing.T, write func(writer int) error) []int {
	t.Helper()
	var wait sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, swappersCount)
	for writer := range swappersCount {
		wait.Go(func() {
			<-start
			errs[writer] = write(writer)
		})
	}
	close(start)
	wait.Wait()
	var winners []int
	for writer, err := range errs {
		switch {
		case err == nil:
			winners = append(winners, writer)
		case !errors.Is(err, objectstore.ErrPrecondition):
			t.Errorf("writer %d: %v, want ErrPrecondition", writer, err)
		}
	}
	return winners
}

func (s suite) oneCreatorWins(t *testing.T, store objectstore.Store) {
	for round := range max(s.options.SwapRounds/5, 1) {
		name := fmt.Sprintf("create/%d", round)
		winners := race(t, func(writer int) error {
			_, err := store.PutIf(t.Context(), name, fmt.Appendf(nil, "writer %d", writer), objectstore.IfAbsent())
			return err
		})
		content, _, err := store.Read(t.Context(), name, 100)
		if err != nil || len(winners) != 1 || string(content) != fmt.Sprintf("writer %d", winners[0]) {
			t.Fatalf("round %d: winners %v, content %q, error %v", round, winners, content, err)
		}
	}
}

func (s suite) oneSwapperWinsEachRound(t *testing.T, store objectstore.Store) {
	etag, err := store.PutIf(t.Context(), "swap/x", []byte("start"), objectstore.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	for round := range s.options.SwapRounds {
		winners := race(t, func(writer int) error {
			_, err := store.PutIf(t.Context(), "swap/x", fmt.Appendf(nil, "round %d writer %d", round, writer), objectstore.IfMatch(etag))
			return err
		})
		var content []byte
		content, etag, err = store.Read(t.Context(), "swap/x", 100)
		if err != nil || len(winners) != 1 || string(content) != fmt.Sprintf("round %d writer %d", round, winners[0]) {
			t.Fatalf("round %d: winners %v, content %q, error %v", round, winners, content, err)
		}
	}
}

func (s suite) listOrderAndPrefix(t *testing.T, store objectstore.Store) {
	// A file system cannot have both an object and objects below it; no name
	// of ours needs it.
	names := []string{"a-b", "a/b/c", "a.b", "a/bc", "b", "chk-1/x", "chk-10/x", "a0"}
	for _, name := range names {
		put(t, store, name, []byte(name))
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "chk-1", "chk-1/", "z", "b/"} {
		var want []string
		for _, name := range slices.Sorted(slices.Values(names)) {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		mustList(t, store, prefix, want)
	}
	for object, err := range store.List(t.Context(), "a/") {
		if err != nil || object.Size != int64(len(object.Name)) {
			t.Errorf("%s has size %d, error %v", object.Name, object.Size, err)
		}
		break // leaving early must be possible
	}
}

func (s suite) listLong(t *testing.T, store objectstore.Store) {
	var want []string
	for i := range s.options.ListObjects {
		name := fmt.Sprintf("long/%06d", i)
		want = append(want, name)
		put(t, store, name, nil)
	}
	mustList(t, store, "long/", want)
}

func (s suite) listAndDelete(t *testing.T, store objectstore.Store) {
	for i := range s.options.ListObjects {
		put(t, store, fmt.Sprintf("gone/%d/x", i), nil)
	}
	put(t, store, "stays", nil)
	for object, err := range store.List(t.Context(), "gone/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), object.Name); err != nil {
			t.Fatal(err)
		}
	}
	mustList(t, store, "", []string{"stays"})
}

func (s suite) deleteIsIdempotent(t *testing.T, store objectstore.Store) {
	put(t, store, "a/b/c", []byte("x"))
	put(t, store, "a/d", []byte("x"))
	for _, name := range []string{"nothing", "a/nothing", "a/b", "a/b/c", "a/b/c", "a/d/below"} {
		if err := store.Delete(t.Context(), name); err != nil {
			t.Errorf("Delete %s: %v", name, err)
		}
	}
	mustList(t, store, "", []string{"a/d"})
	put(t, store, "a/b", []byte("the directory is gone, so its name is free"))
}

// Tidying after the last object of a directory must not get into the way of
// the next one.
func (s suite) putAndDeleteInOneDirectory(t *testing.T, store objectstore.Store) {
	const writers, rounds = 4, 30
	var wait sync.WaitGroup
	for writer := range writers {
		wait.Go(func() {
			name := fmt.Sprintf("a/b/%d", writer)
			for range rounds {
				err := store.Put(t.Context(), name, func(w io.Writer) error { _, err := io.WriteString(w, name); return err })
				if err == nil {
					_, _, err = store.Read(t.Context(), name, 100)
				}
				if err == nil {
					err = store.Delete(t.Context(), name)
				}
				if err != nil {
					t.Errorf("writer %d: %v", writer, err)
					return
				}
			}
		})
	}
	wait.Wait()
	mustList(t, store, "", nil)
}

func (s suite) discardStagedSparesObjects(t *testing.T, store objectstore.Store) {
	put(t, store, "chk-1/x", []byte("x"))
	if _, err := store.DiscardStaged(t.Context(), "", func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	mustList(t, store, "", []string{"chk-1/x"})
}

func (s suite) namesAreChecked(t *testing.T, store objectstore.Store) {
	ctx := t.Context()
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", ".hidden", "a/.tmp-x", "a\\b", "a\x00b", "a\nb", "ä", strings.Repeat("x", 300), strings.Repeat("abc/", 300) + "x"} {
		errs := []error{
			store.Put(ctx, name, func(io.Writer) error { return nil }),
			store.Delete(ctx, name),
		}
		_, err := store.PutIf(ctx, name, nil, objectstore.IfAbsent())
		errs = append(errs, err)
		_, _, err = store.Read(ctx, name, 1)
		errs = append(errs, err)
		_, err = store.Open(ctx, name)
		errs = append(errs, err)
		for i, err := range errs {
			if err == nil || errors.Is(err, objectstore.ErrNotExist) {
				t.Errorf("name %.20q, call %d: error %v, want one about the name", name, i, err)
			}
		}
	}
}

func (s suite) endedContext(t *testing.T, store objectstore.Store) {
	put(t, store, "x", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := func(call string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) || errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	want("Put", store.Put(ctx, "y", func(w io.Writer) error { _, err := w.Write([]byte("y")); return err }))
	_, err := store.PutIf(ctx, "z", nil, objectstore.IfAbsent())
	want("PutIf", err)
	_, _, err = store.Read(ctx, "x", 10)
	want("Read", err)
	_, err = store.Open(ctx, "x")
	want("Open", err)
	want("Delete", store.Delete(ctx, "x"))
	err = nil
	for _, err = range store.List(ctx, "") {
	}
	want("List", err)
	mustList(t, store, "", []string{"x"})
}

func (s suite) errorsNameObject(t *testing.T, store objectstore.Store) {
	_, _, err := store.Read(t.Context(), "some/object", 1)
	if err == nil || !strings.Contains(err.Error(), store.URI("some/object")) {
		t.Errorf("error %q does not name %s", err, store.URI("some/object"))
	}
	if root := store.URI(""); !strings.HasPrefix(store.URI("x"), root) || strings.HasSuffix(root, "//") {
		t.Errorf("root %s, object %s", root, store.URI("x"))
	}
}

func (s suite) sub(t *testing.T, store objectstore.Store) {
	sub := objectstore.Sub(store, "job")
	put(t, sub, "chk-1/a", []byte("a"))
	put(t, store, "jobs/b", []byte("b"))
	mustList(t, sub, "", []string{"chk-1/a"})
	mustList(t, store, "", []string{"job/chk-1/a", "jobs/b"})
	if got := open(t, sub, "chk-1/a"); string(got) != "a" {
		t.Errorf("Open gave %q", got)
	}
	if got, want := sub.URI("chk-1/a"), store.URI("job/chk-1/a"); got != want {
		t.Errorf("URI is %s, want %s", got, want)
	}
	if got, want := sub.URI(""), store.URI("job"); got != want {
		t.Errorf("URI of the root is %s, want %s", got, want)
	}
	if err := sub.Delete(t.Context(), "chk-1/a"); err != nil {
		t.Error(err)
	}
	mustList(t, store, "", []string{"jobs/b"})
}

func (s suite) check(t *testing.T, store objectstore.Store) {
	if err := store.Check(t.Context()); err != nil {
		t.Error(err)
	}
	mustList(t, store, "", nil)
}

func put(t *testing.T, store objectstore.Store, name string, content []byte) {
	t.Helper()
	err := store.Put(t.Context(), name, func(w io.Writer) error {
		// In two pieces, as a stream comes.
		if _, err := w.Write(content[:len(content)/3]); err != nil {
			return err
		}
		_, err := w.Write(content[len(content)/3:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, store objectstore.Store, name string) []byte {
	t.Helper()
	reader, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if closeErr := reader.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return content
}

func mustRead(t *testing.T, store objectstore.Store, name, want string, wantETag objectstore.ETag) {
	t.Helper()
	content, etag, err := store.Read(t.Context(), name, 1<<20)
	if err != nil || string(content) != want || etag != wantETag {
		t.Errorf("Read %s gave %q, ETag %s, error %v; want %q, ETag %s", name, content, etag, err, want, wantETag)
	}
}

func mustList(t *testing.T, store objectstore.Store, prefix string, want []string) {
	t.Helper()
	var got []string
	for object, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, object.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("List %q gave %d objects, want %d:\n%s\nwant\n%s", prefix, len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
