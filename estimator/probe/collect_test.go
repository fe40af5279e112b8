package probe

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCompiledTakesFilesAlone: what a run compiled goes to the next one; what else has such a name does not.
func TestCompiledTakesFilesAlone(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"compiled-0123456789abcdef.bin": "kept", "compiled-1.bin": "no digest", "compiled-0123456789abcdee.bin": "", "jax-7.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "compiled-0123456789abcded.bin")); err != nil {
		t.Fatal(err)
	}
	files := compiled(dir)
	if len(files) != 1 || files[0].Name != "compiled-0123456789abcdef.bin" || string(files[0].Data) != "kept" {
		t.Errorf("%+v", files)
	}
	if files := compiled(filepath.Join(dir, "none")); files != nil {
		t.Errorf("%+v", files)
	}
}
