// Package torchtest finds the Python environments with PyTorch that `make setup` prepares for tests and benchmarks.
package torchtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Cache is the folder of the environments: GRESIZE_CACHE, as in the Makefile.
func Cache() string {
	if cache := os.Getenv("GRESIZE_CACHE"); cache != "" {
		return cache
	}
	return "/var/cache/gresize"
}

// Environment is the folder of the environment of a PyTorch release, such as 2.6.0; without it the test fails.
func Environment(t testing.TB, release string) string {
	t.Helper()
	path := filepath.Join(Cache(), "venv-torch-"+release)
	if _, err := os.Stat(filepath.Join(path, "bin", "python")); err != nil {
		t.Fatalf("%v: `make setup` prepares it", err)
	}
	return path
}

// Python is the interpreter of that environment.
func Python(t testing.TB, release string) string {
	t.Helper()
	return filepath.Join(Environment(t, release), "bin", "python")
}
