package runtime

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
)

// hasDeathSignal: the kernel kills executors whose TaskManager has died.
const hasDeathSignal = true

// dynamicBinary is the least that the kernel takes for a program with a loader.
func dynamicBinary(t *testing.T, loader string) []byte {
	t.Helper()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[goruntime.GOARCH]
	const headerBytes, segmentBytes = 64, 56
	at := uint64(headerBytes + segmentBytes)
	var b bytes.Buffer
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Entry: 0x400000,
		Phoff: headerBytes, Ehsize: headerBytes, Phentsize: segmentBytes, Phnum: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	size := uint64(len(loader) + 1)
	for _, part := range []any{header, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: at, Vaddr: at, Filesz: size, Memsz: size, Flags: uint32(elf.PF_R)}} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(loader + "\x00")
	return b.Bytes()
}

func TestDynamicallyLinkedBinaryWithoutLoaderSaysWhichLoader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dynamic")
	if err := os.WriteFile(path, dynamicBinary(t, "/no/such/loader.so"), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t.TempDir(), "stay")
	spec.Binary = path
	_, err := newTestLauncher(t).Start(t.Context(), spec)
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "/no/such/loader.so") || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Error(err)
	}
}
