// Package packaging tests what a site installs: the files of the packages, and their life in clean roots.
package packaging

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// makePackages packs what stands in build/, uncompressed where that is quicker, and returns the folder.
func makePackages(t *testing.T, env ...string) string {
	t.Helper()
	build, err := filepath.Abs("../build")
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{"bin/gresize", "libexec/gresize-estimator", "lib/vgpu", "man/gresize.1"} {
		if _, err := os.Stat(filepath.Join(build, made)); err != nil {
			t.Fatalf("%v: run make build", err)
		}
	}
	// The release of this machine's Slurm, as `make build-plugins` would lay it out.
	inputs := t.TempDir()
	for _, part := range []string{"bin", "libexec", "lib", "man"} {
		if err := os.Symlink(filepath.Join(build, part), filepath.Join(inputs, part)); err != nil {
			t.Fatal(err)
		}
	}
	release := strings.TrimSpace(output(t, "make", "-s", "-C", "../slurm/plugin", "release"))
	if err := os.MkdirAll(filepath.Join(inputs, "plugin/slurm-"+release), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(build, "plugin/job_submit_gresize.so"), filepath.Join(inputs, "plugin/slurm-"+release, "job_submit_gresize.so")); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	cmd := exec.Command("./make-packages", inputs, out, nfpm(t))
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make-packages: %v\n%s", err, text)
	}
	return out
}

// nfpm is the packager that the Makefile pins.
func nfpm(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^NFPM := (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the Makefile pins no nfpm")
	}
	return string(found[1])
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// one is the only package of a folder that a pattern finds.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v, want one package", pattern, found, err)
	}
	return found[0]
}

type packedFile struct {
	header *tar.Header
	data   []byte
}

func debFiles(t *testing.T, deb string) map[string]packedFile {
	t.Helper()
	files := map[string]packedFile{}
	for r := tar.NewReader(strings.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, ".")] = packedFile{h, data}
	}
}

// runsOnAnOldLibrary looks at the symbols that a program or library wants of the C library: RHEL 7 has 2.17, RHEL 8 has 2.28.
func runsOnAnOldLibrary(t *testing.T, name string, data []byte) {
	t.Helper()
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	symbols, err := file.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Errorf("%s: %v", name, err)
	}
	for _, s := range symbols {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_2.")
		if minor, err := strconv.Atoi(strings.Split(version, ".")[0]); ok && (err != nil || minor > 17) {
			t.Errorf("%s needs %s of the C library's version %s", name, s.Name, s.Version)
		}
	}
}

func TestFilesOfThePackages(t *testing.T) {
	out := makePackages(t, "KINDS=deb", "DEB_COMPRESSION=none", "VERSION=1.2.3-rc.4")
	deb := one(t, out, "gresize_1.2.3~rc.4-1_*.deb")
	files := debFiles(t, deb)

	want := map[string]int64{
		"/etc/gresize/gresize.toml":                         0o644,
		"/usr/bin/gresize":                                  0o755,
		"/usr/bin/gresized":                                 0o755,
		"/usr/libexec/gresize/gresize-probe":                0o755,
		"/usr/libexec/gresize/gresize-launch":               0o755,
		"/usr/libexec/gresize/gresize-epilog":               0o755,
		"/usr/libexec/gresize/gresize-estimator":            0o755,
		"/usr/lib/gresize/vgpu/libcuda.so.1":                0o755,
		"/usr/lib/gresize/vgpu/gresize-audit.so":            0o755,
		"/usr/lib/gresize/python/sitecustomize.py":          0o644,
		"/usr/lib/gresize/profiles/a100-80.json":            0o644,
		"/usr/lib/systemd/system/gresized.service":          0o644,
		"/usr/lib/systemd/system/gresize-launch.service":    0o644,
		"/usr/lib/sysusers.d/gresize.conf":                  0o644,
		"/usr/lib/tmpfiles.d/gresize.conf":                  0o644,
		"/usr/share/bash-completion/completions/gresize":    0o644,
		"/usr/share/zsh/vendor-completions/_gresize":        0o644,
		"/usr/share/fish/vendor_completions.d/gresize.fish": 0o644,
		"/usr/share/man/man1/gresize.1":                     0o644,
		"/usr/share/man/man1/gresize-report.1":              0o644,
		"/usr/share/man/man5/gresize.toml.5":                0o644,
		"/usr/share/man/man8/gresized.8":                    0o644,
		"/usr/share/doc/gresize/README.md":                  0o644,
		"/usr/share/doc/gresize/docs/install.md":            0o644,
		"/usr/share/doc/gresize/copyright":                  0o644,
		"/usr/share/doc/gresize/epilog.sh":                  0o755,
		"/usr/share/doc/gresize/task-prolog.sh":             0o755,
	}
	for name, mode := range want {
		f, ok := files[name]
		if !ok {
			t.Errorf("%s is not in the package", name)
			continue
		}
		if f.header.Mode&0o7777 != mode {
			t.Errorf("%s has mode %o, want %o", name, f.header.Mode, mode)
		}
		if len(f.data) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	ours := regexp.MustCompile(`^/(etc/gresize|usr/(bin|libexec/gresize|lib/(gresize|systemd/system|sysusers\.d|tmpfiles\.d)|share/(doc/gresize|man/man[158]|bash-completion/completions|zsh/vendor-completions|fish/vendor_completions\.d)))/.`)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		h := f.header
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o7022 != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o: not to root alone", name, h.Uid, h.Gid, h.Mode)
		}
		switch {
		case h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink:
			t.Errorf("%s is of type %c", name, h.Typeflag)
		case !ours.MatchString(name):
			t.Errorf("%s lies in a folder that is not ours", name)
		case strings.Contains(name, "__pycache__"):
			t.Errorf("%s is the compilation of somebody's run", name)
		}
		if bytes.Contains(f.data, []byte(root+"/")) {
			t.Errorf("%s names the folder in which it was built", name)
		}
		runsOnAnOldLibrary(t, name, f.data)
	}
	if got := output(t, "dpkg-deb", "--info", deb, "conffiles"); got != "/etc/gresize/gresize.toml\n" {
		t.Errorf("conffiles: %q", got)
	}
	example := filepath.Join(t.TempDir(), "gresize.toml")
	if err := os.WriteFile(example, files["/etc/gresize/gresize.toml"].data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := output(t, "../build/bin/gresized", "-check", example); !strings.Contains(got, "mode shadow") {
		t.Errorf("the configuration of a fresh installation: %s", got)
	}
	for _, script := range []string{"preinst", "postinst", "prerm", "postrm"} {
		path := filepath.Join(t.TempDir(), script)
		if err := os.WriteFile(path, []byte(output(t, "dpkg-deb", "--info", deb, script)), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, "sh", "-n", path)
	}

	release := strings.TrimSpace(output(t, "make", "-s", "-C", "../slurm/plugin", "release"))
	plugin := one(t, out, "gresize-slurm-plugin-"+release+"_1.2.3~rc.4-1_*.deb")
	inside := debFiles(t, plugin)
	var libraries []string
	for name, f := range inside {
		if f.header.Typeflag == tar.TypeReg {
			libraries = append(libraries, name)
		}
		if bytes.Contains(f.data, []byte(root+"/")) {
			t.Errorf("%s names the folder in which it was built", name)
		}
		runsOnAnOldLibrary(t, name, f.data)
	}
	if len(libraries) != 1 || filepath.Base(libraries[0]) != "job_submit_gresize.so" {
		t.Errorf("the plugin's package holds %v", libraries)
	}
	depends := output(t, "dpkg-deb", "--field", plugin, "Depends")
	if !strings.Contains(depends, "slurmctld (>= "+release+")") || !regexp.MustCompile(`slurmctld \(<< [0-9.]+~\)`).MatchString(depends) {
		t.Errorf("the plugin for %s depends on %s", release, depends)
	}
}
