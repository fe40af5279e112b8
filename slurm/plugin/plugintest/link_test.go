package plugintest

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// slurmLibrary is the library that slurmctld links and plugins take symbols from, of this machine or of another root.
func slurmLibrary(t *testing.T, root string) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/slurm-wlm/libslurmfull.so", "/usr/lib*/slurm/libslurmfull.so"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatal("libslurmfull.so is not installed; Debian has it in slurm-wlm-basic-plugins")
	return ""
}

// TestEverySymbolIsThere guards against a call that only fails when a job comes:
// slurmctld loads plugins lazily and would crash then.
func TestEverySymbolIsThere(t *testing.T) {
	checkSymbols(t, shipped.plugin, slurmLibrary(t, ""))
}

func checkSymbols(t *testing.T, path, libraryPath string) {
	t.Helper()
	plugin, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close()
	library, err := elf.Open(libraryPath)
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()

	slurm := map[string]bool{}
	provided, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range provided {
		slurm[symbol.Name] = symbol.Section != elf.SHN_UNDEF
	}
	symbols, err := plugin.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exports, fromSlurm []string
	for _, symbol := range symbols {
		weak := elf.ST_BIND(symbol.Info) == elf.STB_WEAK
		switch {
		case symbol.Section != elf.SHN_UNDEF:
			exports = append(exports, symbol.Name)
		case weak:
		case strings.HasPrefix(symbol.Version, "GLIBC_"):
			if newerThan(strings.TrimPrefix(symbol.Version, "GLIBC_"), 2, 17) {
				t.Errorf("%s is of %s: a slurmctld with an older C library would not start", symbol.Name, symbol.Version)
			}
		case slurm[symbol.Name]:
			fromSlurm = append(fromSlurm, symbol.Name)
		default:
			t.Errorf("%s is neither in libc nor in libslurmfull.so", symbol.Name)
		}
	}
	slices.Sort(exports)
	want := []string{"fini", "init", "job_modify", "job_submit", "plugin_name", "plugin_type", "plugin_version"}
	if !slices.Equal(exports, want) {
		t.Errorf("exports %q, want %q", exports, want)
	}
	t.Logf("from Slurm: %s", strings.Join(fromSlurm, " "))

	if flags, err := plugin.DynValue(elf.DT_FLAGS); err != nil || len(flags) == 0 || flags[0]&uint64(elf.DF_BIND_NOW) == 0 {
		t.Errorf("not linked with -z now: %v %v", flags, err)
	}
	if !slices.ContainsFunc(plugin.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_RELRO }) {
		t.Error("not linked with -z relro")
	}
}

// newerThan tells whether a version of the C library is newer than major.minor; one that is not understood is.
func newerThan(version string, major, minor int) bool {
	var gotMajor, gotMinor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &gotMajor, &gotMinor); n < 2 {
		return true
	}
	return gotMajor > major || gotMajor == major && gotMinor > minor
}

// TestVersionFollowsTheRunningSlurm builds the plugin for another micro and for
// another minor version and loads it beside the Slurm of this machine.
func TestVersionFollowsTheRunningSlurm(t *testing.T) {
	dir := t.TempDir()
	loader := filepath.Join(dir, "load")
	if output, err := exec.Command("cc", "-Wall", "-Wextra", "-Werror", "-o", loader, "../tests/load.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	headers, err := filepath.Glob("/usr/include/slurm/*.h")
	if err != nil || len(headers) == 0 {
		t.Fatalf("no Slurm headers: %v", err)
	}
	number := regexp.MustCompile(`(#define SLURM_VERSION_NUMBER) 0x([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})`)
	var running string

	// loadWith builds with headers whose version is edited and returns what slurmctld would see.
	loadWith := func(name, edit string) string {
		include := filepath.Join(dir, name, "include", "slurm")
		if err := os.MkdirAll(include, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, header := range headers {
			content, err := os.ReadFile(header)
			if err != nil {
				t.Fatal(err)
			}
			if m := number.FindSubmatch(content); m != nil {
				running = fmt.Sprintf("0x%s%s%s", m[2], m[3], m[4])
			}
			content = number.ReplaceAll(content, []byte("$1 "+edit))
			if err := os.WriteFile(filepath.Join(include, filepath.Base(header)), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := compilePluginOnly(filepath.Join(dir, name), filepath.Join(dir, name, "include"))
		if err != nil {
			t.Fatal(err)
		}
		output, err := exec.Command(loader, slurmLibrary(t, ""), b).Output()
		if err != nil {
			t.Fatalf("load: %v", err)
		}
		return strings.TrimSpace(string(output))
	}
	format := "job_submit/gresize %s init=0"
	if got, want := loadWith("micro", "0x${2}${3}fa"), fmt.Sprintf(format, running); got != want {
		t.Errorf("built for another micro version: %q, want %q", got, want)
	}
	got := loadWith("minor", "0x${2}3f${4}")
	if want := fmt.Sprintf(format, running[:4]+"3f"+running[6:]); got != want {
		t.Errorf("built for another minor version: %q, want %q, which slurmctld refuses", got, want)
	}
}

func compilePluginOnly(dir, include string) (string, error) {
	args := []string{"-s", "-C", "..", "OUT=" + dir, "CFLAGS=-O1 -isystem " + include}
	if output, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, output)
	}
	return filepath.Join(dir, "job_submit_gresize.so"), nil
}

// TestBreaker runs the C test of the breaker, which has a clock of its own.
func TestBreaker(t *testing.T) {
	program := filepath.Join(t.TempDir(), "breaker_test")
	if output, err := exec.Command("cc", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-o", program,
		"../tests/breaker_test.c", "../breaker.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if output, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
