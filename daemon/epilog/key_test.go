package epilog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keyFile writes a key.
func keyFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "slurm.key")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProofByKey: whoever can read the key is believed once and for some minutes; nobody else, and not a changed word.
func TestProofByKey(t *testing.T) {
	secret := strings.Repeat("k", 32)
	path, now := keyFile(t, secret, 0o600), time.Unix(1_800_000_000, 0)
	document := []byte(`{"a": "b c"}`)
	proof, err := seal(path, document, now)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(proof, []byte(secret)) {
		t.Error("the key is in the proof")
	}
	key := &Key{Path: path}
	if got, uid, err := key.open(proof, now.Add(time.Minute)); err != nil || !bytes.Equal(got, document) || uid != uint32(os.Getuid()) {
		t.Fatalf("%q %d %v", got, uid, err)
	}
	changed := bytes.Clone(proof)
	changed[len(proofForm)+1]++
	for name, c := range map[string]struct {
		proof []byte
		at    time.Duration
		with  *Key
		want  string
	}{
		"a second time":     {proof, time.Minute, key, "used before"},
		"too late":          {proof, proofAge + time.Second, &Key{Path: path}, "clocks"},
		"too early":         {proof, -proofAge - time.Second, &Key{Path: path}, "clocks"},
		"another user id":   {changed, 0, &Key{Path: path}, "no proof"},
		"cut":               {proof[:len(proof)-2], 0, &Key{Path: path}, "no proof"},
		"nothing":           {nil, 0, &Key{Path: path}, "no proof"},
		"munge":             {[]byte("MUNGE:AwQDAAB:"), 0, &Key{Path: path}, "no proof"},
		"another cluster":   {proof, 0, &Key{Path: keyFile(t, strings.Repeat("x", 32), 0o600)}, "no proof"},
		"no key":            {proof, 0, &Key{Path: "/nonexistent"}, "no such file"},
		"a key for all":     {proof, 0, &Key{Path: keyFile(t, secret, 0o644)}, "chmod 600"},
		"a key of a letter": {proof, 0, &Key{Path: keyFile(t, "k", 0o600)}, "has 1 bytes"},
	} {
		if _, _, err := c.with.open(c.proof, now.Add(c.at)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if key.open(proof, now.Add(3*proofAge)); len(key.seen) != 1 {
		t.Errorf("%d proofs are kept", len(key.seen))
	}
	other, err := seal(path, document, now.Add(4*proofAge))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := key.open(other, now.Add(4*proofAge)); err != nil || len(key.seen) != 1 {
		t.Errorf("%v, %d proofs are kept: old ones go", err, len(key.seen))
	}
}

// FuzzKeyOpen: no bytes of a stranger crash it or are taken.
func FuzzKeyOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "key")
	if err := os.WriteFile(path, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("gresize-proof/1 0 1800000000 00 e30= 00"))
	f.Fuzz(func(t *testing.T, proof []byte) {
		k := &Key{Path: path}
		if _, _, err := k.open(proof, time.Unix(1_800_000_000, 0)); err == nil {
			t.Errorf("%q was taken", proof)
		}
	})
}
