// Command generate reads an installed PyTorch and prints its symbol manifest.
//
//	go run ./estimator/vgpu/manifest/generate SITE-PACKAGES > estimator/vgpu/manifest/torch-X-cuY.json
//
// SITE-PACKAGES is the folder that holds torch/ and its metadata. Nothing of that PyTorch is run.
package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

const (
	driverLibrary     = "libcuda.so.1"
	managementLibrary = "libnvidia-ml.so.1"
)

var (
	nvidiaLibrary  = regexp.MustCompile(`^lib(cu|nv|nccl)`)
	openedLibrary  = regexp.MustCompile(`^lib(cu|nv|nccl)[A-Za-z0-9_-]{1,60}\.so\.[0-9]{1,3}(\.[0-9]{1,3})?$`)
	wheelHash      = regexp.MustCompile(`-[0-9a-f]{8}\.so`)
	driverName     = regexp.MustCompile(`^cu[A-Z][A-Za-z0-9]{2,60}(_v[0-9])?$`)
	managementName = regexp.MustCompile(`^nvml[A-Z][A-Za-z0-9]{2,60}(_v[0-9])?$`)
	pinned         = regexp.MustCompile(`^Requires-Dist: (nvidia-[a-z0-9-]+|cuda-toolkit)(?:\[[^\]]*\])? ?\(?==([0-9][0-9.]*)\)?`)
	cudaVersion    = regexp.MustCompile(`(?m)^cuda[^=\n]*= '([0-9]+\.[0-9]+)'`)
)

// prefixes say where an unversioned symbol belongs; the longest prefixes come first.
var prefixes = []struct{ symbol, library string }{
	{"cusparseLt", "libcusparseLt."}, {"cublasLt", "libcublasLt."}, {"nvshmem", "libnvshmem_host."}, {"cuFile", "libcufile."},
	{"cusolver", "libcusolver."}, {"cusparse", "libcusparse."}, {"curand", "libcurand."}, {"cublas", "libcublas."}, {"cudnn", "libcudnn."},
	{"cufft", "libcufft."}, {"cupti", "libcupti."}, {"nvrtc", "libnvrtc."}, {"nccl", "libnccl."}, {"pnccl", "libnccl."},
	{"__cuda", "libcudart."}, {"cuda", "libcudart."},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate SITE-PACKAGES")
		os.Exit(64)
	}
	m, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(manifest.Format(m)); err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
}

func read(site string) (manifest.Manifest, error) {
	m := manifest.Manifest{Packages: map[string]string{}, Libraries: map[string]manifest.Library{}}
	if err := readRelease(site, &m); err != nil {
		return m, err
	}
	paths, err := filepath.Glob(filepath.Join(site, "torch", "lib", "*.so*"))
	if err != nil {
		return m, err
	}
	if len(paths) == 0 {
		return m, fmt.Errorf("%s: no torch/lib/*.so", site)
	}
	c := collector{symbols: map[string]map[string]bool{driverLibrary: {}, managementLibrary: {}}, nodes: map[string]string{}, own: map[string]bool{}}
	for _, p := range paths {
		// A library that the wheel holds under a name with a hash is NVIDIA's all the same.
		if base := filepath.Base(p); !wheelHash.MatchString(base) {
			c.own[base] = true
		}
	}
	for _, p := range paths {
		if !c.own[filepath.Base(p)] {
			continue
		}
		if err := c.addObject(p); err != nil {
			return m, fmt.Errorf("%s: %w", p, err)
		}
	}
	c.placeLoose()
	for soname, set := range c.symbols {
		lib := manifest.Library{Node: c.nodes[soname], Symbols: []string{}}
		for s := range set {
			lib.Symbols = append(lib.Symbols, s)
		}
		sort.Strings(lib.Symbols)
		m.Libraries[soname] = lib
	}
	return m, nil
}

// readRelease fills in versions from version.py and the package's METADATA.
func readRelease(site string, m *manifest.Manifest) error {
	text, err := os.ReadFile(filepath.Join(site, "torch", "version.py"))
	if err != nil {
		return err
	}
	match := cudaVersion.FindSubmatch(text)
	if match == nil {
		return errors.New("torch/version.py names no CUDA version: a CPU-only build")
	}
	m.CUDA = string(match[1])
	infos, err := filepath.Glob(filepath.Join(site, "torch-*.dist-info", "METADATA"))
	if err != nil {
		return err
	}
	if len(infos) != 1 {
		return fmt.Errorf("%s: %d torch-*.dist-info, want 1", site, len(infos))
	}
	f, err := os.Open(infos[0])
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if version, ok := strings.CutPrefix(lines.Text(), "Version: "); ok && m.Torch == "" {
			m.Torch, _, _ = strings.Cut(version, "+")
		}
		if match := pinned.FindStringSubmatch(lines.Text()); match != nil {
			m.Packages[match[1]] = match[2]
		}
	}
	return lines.Err()
}

type collector struct {
	symbols map[string]map[string]bool // by SONAME
	nodes   map[string]string          // version node by SONAME
	loose   []string                   // undefined symbols without a version
	own     map[string]bool            // PyTorch's own libraries
}

// wants says whether a library of that name is one to stand in for.
func (c *collector) wants(soname string) bool {
	return nvidiaLibrary.MatchString(soname) && !c.own[soname]
}

func (c *collector) addLibrary(soname string) {
	if c.symbols[soname] == nil {
		c.symbols[soname] = map[string]bool{}
	}
}

func (c *collector) addObject(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, soname := range needed {
		if c.wants(soname) {
			c.addLibrary(soname)
		}
	}
	imported, err := f.ImportedSymbols()
	if err != nil {
		return err
	}
	for _, s := range imported {
		switch {
		case s.Version == "" && s.Library == "":
			c.loose = append(c.loose, s.Name)
		case c.wants(s.Library):
			if old := c.nodes[s.Library]; old != "" && old != s.Version {
				return fmt.Errorf("%s: version nodes %q and %q", s.Library, old, s.Version)
			}
			c.nodes[s.Library] = s.Version
			c.symbols[s.Library][s.Name] = true
		}
	}
	return c.addStrings(f, strings.HasPrefix(filepath.Base(path), "libc10_cuda."))
}

// addStrings finds what is opened at run time, by names that lie in the read-only data: libraries, and, where names says so,
// symbols of the driver and of the management library.
func (c *collector) addStrings(f *elf.File, names bool) error {
	section := f.Section(".rodata")
	if section == nil {
		return nil
	}
	data, err := section.Data()
	if err != nil {
		return err
	}
	for len(data) > 0 {
		text, rest, _ := bytes.Cut(data, []byte{0})
		data = rest
		switch {
		case len(text) > 80:
		case openedLibrary.Match(text) && c.wants(string(text)):
			c.addLibrary(string(text))
		case names && driverName.Match(text):
			c.symbols[driverLibrary][string(text)] = true
		case names && managementName.Match(text):
			c.symbols[managementLibrary][string(text)] = true
		}
	}
	return nil
}

// placeLoose gives every unversioned symbol with an NVIDIA prefix to the library of that name.
func (c *collector) placeLoose() {
	for _, name := range c.loose {
		prefix := ""
		for _, p := range prefixes {
			if strings.HasPrefix(name, p.symbol) {
				prefix = p.library
				break
			}
		}
		if prefix == "" && driverName.MatchString(name) {
			prefix = driverLibrary
		}
		if prefix == "" {
			continue
		}
		for soname := range c.symbols {
			if strings.HasPrefix(wheelHash.ReplaceAllString(soname, ".so"), prefix) {
				c.symbols[soname][name] = true
			}
		}
	}
}
