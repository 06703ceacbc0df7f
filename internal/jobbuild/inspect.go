package jobbuild

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// hintBuild is how to make a binary that is accepted.
func hintBuild(platform Platform) string {
	return fmt.Sprintf("build it with CGO_ENABLED=0 GOOS=%s GOARCH=%s go build, or give the package's path", platform.OS, platform.Arch)
}

// usePrebuilt checks that the binary will run on the cluster and can be asked
// for its graph here.
func usePrebuilt(request Request) (binary, local string, err error) {
	binary, err = filepath.Abs(request.Program)
	if err != nil {
		return "", "", fmt.Errorf("look for program: %w", err)
	}
	found, err := inspect(binary)
	if err != nil {
		return "", "", err
	}
	switch {
	case found.platform != request.Platform:
		return "", "", &Error{Message: fmt.Sprintf("%s is built for %s, the cluster runs on %s", request.Program, found.platform, request.Platform),
			Hint: hintBuild(request.Platform)}
	case found.interpreter != "":
		return "", "", &Error{Message: fmt.Sprintf("%s is dynamically linked: it needs the loader %s, which TaskManagers need not have", request.Program, found.interpreter),
			Hint: hintBuild(request.Platform)}
	case !found.isGo:
		return "", "", &Error{Message: request.Program + " is not a Go program", Hint: hintBuild(request.Platform)}
	case request.Platform != Host():
		return "", "", &Error{Message: fmt.Sprintf("%s is built for %s and cannot be asked for its graph on %s", request.Program, found.platform, Host()),
			Hint: "submit the package's path instead: it is then built for both"}
	}
	info, err := os.Stat(binary)
	if err != nil {
		return "", "", fmt.Errorf("look for program: %w", err)
	}
	if info.Mode().Perm()&0o111 == 0 {
		return "", "", &Error{Message: request.Program + " may not be executed", Hint: "allow it with chmod +x " + request.Program}
	}
	return binary, binary, nil
}

// inspected is what a binary's headers say.
type inspected struct {
	platform Platform
	// interpreter is the loader that the binary asks for, empty when it is static.
	interpreter string
	isGo        bool
}

// inspect reads the headers of a binary. It is not run.
func inspect(name string) (found inspected, err error) {
	file, err := os.Open(name)
	if err != nil {
		return inspected{}, fmt.Errorf("open program: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(file, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return inspected{}, fmt.Errorf("read program: %w", err)
	}
	switch {
	case bytes.Equal(magic, []byte(elf.ELFMAG)):
		found, err = inspectELF(name, file)
	case bytes.HasPrefix(magic, []byte("MZ")):
		found, err = inspectPE(name, file)
	case isMachO(magic):
		found, err = inspectMachO(name, file)
	default:
		return inspected{}, &Error{Message: name + " is neither a Go package nor a binary",
			Hint: "give the directory of a Go package, as in ./examples/flights, or a binary"}
	}
	if err != nil {
		return inspected{}, err
	}
	info, err := buildinfo.Read(file)
	found.isGo = err == nil
	// The build settings know the system better than the headers, which many systems share.
	if found.isGo {
		for _, setting := range info.Settings {
			if setting.Key == "GOOS" {
				found.platform.OS = setting.Value
			}
		}
	}
	return found, nil
}

// damaged is the error for headers that cannot be read.
func damaged(name string, err error) error {
	return &Error{Message: fmt.Sprintf("%s is damaged: %v", name, err)}
}

// archOfELF names the machines that Go builds for.
var archOfELF = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x", elf.EM_PPC64: "ppc64le", elf.EM_LOONGARCH: "loong64",
}

func inspectELF(name string, content io.ReaderAt) (inspected, error) {
	file, err := elf.NewFile(content)
	if err != nil {
		return inspected{}, damaged(name, err)
	}
	arch, ok := archOfELF[file.Machine]
	if !ok {
		arch = file.Machine.String()
	}
	if file.Machine == elf.EM_PPC64 && file.ByteOrder.String() == "BigEndian" {
		arch = "ppc64"
	}
	found := inspected{platform: Platform{OS: systemOfELF(file.OSABI), Arch: arch}}
	for _, program := range file.Progs {
		if program.Type != elf.PT_INTERP {
			continue
		}
		// A path of a file: longer ones are no loader.
		path, err := io.ReadAll(io.LimitReader(program.Open(), 4096))
		if err != nil {
			return inspected{}, damaged(name, err)
		}
		found.interpreter = string(bytes.TrimRight(path, "\x00"))
	}
	return found, nil
}

// systemOfELF tells the systems that mark their binaries; what is left is Linux.
func systemOfELF(abi elf.OSABI) string {
	if abi == elf.ELFOSABI_FREEBSD {
		return "freebsd"
	}
	return "linux"
}

func inspectPE(name string, content io.ReaderAt) (inspected, error) {
	file, err := pe.NewFile(content)
	if err != nil {
		return inspected{}, damaged(name, err)
	}
	arch := map[uint16]string{
		pe.IMAGE_FILE_MACHINE_AMD64: "amd64", pe.IMAGE_FILE_MACHINE_ARM64: "arm64", pe.IMAGE_FILE_MACHINE_I386: "386",
	}[file.Machine]
	return inspected{platform: Platform{OS: "windows", Arch: arch}}, nil
}

func isMachO(magic []byte) bool {
	for _, known := range [][]byte{{0xcf, 0xfa, 0xed, 0xfe}, {0xce, 0xfa, 0xed, 0xfe}} {
		if bytes.Equal(magic, known) {
			return true
		}
	}
	return false
}

func inspectMachO(name string, content io.ReaderAt) (inspected, error) {
	file, err := macho.NewFile(content)
	if err != nil {
		return inspected{}, damaged(name, err)
	}
	arch := map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[file.Cpu]
	return inspected{platform: Platform{OS: "darwin", Arch: arch}}, nil
}
