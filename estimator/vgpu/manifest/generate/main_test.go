package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator/vgpu/manifest"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// The manifests in the tree are what this program reads from the very wheels that the tests run on.
func TestReadsWhatIsInTheTree(t *testing.T) {
	all, err := manifest.All()
	if err != nil {
		t.Fatal(err)
	}
	releases := []string{"2.6.0", "2.11.0"}
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		releases = append(releases, "2.1.2", "2.3.1", "2.9.1", "2.15.0")
	}
	for _, release := range releases {
		sites, err := filepath.Glob(filepath.Join(torchtest.Cache(), "venv-torch-"+release, "lib/python3*/site-packages"))
		if err != nil || len(sites) != 1 {
			t.Fatalf("PyTorch %s is not in %s (`make setup` puts it there): %v", release, torchtest.Cache(), err)
		}
		got, err := read(sites[0])
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, want := range all {
			if want.Torch == release {
				found = true
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("PyTorch %s:\n%s", release, diff)
				}
			}
		}
		if !found {
			t.Errorf("no manifest of PyTorch %s in the tree", release)
		}
	}
}

func TestReadSaysWhatIsMissing(t *testing.T) {
	site := t.TempDir()
	if err := os.MkdirAll(filepath.Join(site, "torch"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(site, "torch/version.py"), []byte("__version__ = '2.6.0+cpu'\ncuda: Optional[str] = None\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(site); err == nil {
		t.Error("a CPU-only build was read")
	}
}
