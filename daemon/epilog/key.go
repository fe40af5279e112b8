package epilog

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/internal/regular"
)

const (
	// proofForm begins a proof, and is what its key is made for: what is derived from Slurm's key for it is good for nothing of Slurm.
	proofForm = "gresize-proof/1"
	// proofAge is how far the clocks of two machines of a cluster may be apart, and how long a proof is good.
	proofAge = 5 * time.Minute
	// A key of less is no secret; slurm.key has 1024 bytes as a rule.
	minKeyBytes, maxKeyBytes = 16, 64 << 10
)

// readKey reads a secret that root and SlurmUser of all machines of a cluster share, such as Slurm's own slurm.key, and derives the one of proofs from it.
func readKey(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others than its owner (mode %04o), and proves nothing: chmod 600", path, info.Mode().Perm())
	}
	secret, err := io.ReadAll(io.LimitReader(f, maxKeyBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(secret) < minKeyBytes || len(secret) > maxKeyBytes:
		return nil, fmt.Errorf("%s has %d bytes: a key has %d to %d (dd if=/dev/random of=KEY bs=1024 count=1)", path, len(secret), minKeyBytes, maxKeyBytes)
	}
	return hkdf.Key(sha256.New, secret, nil, proofForm, sha256.Size)
}

// CheckKey says why a file is no key.
func CheckKey(path string) error {
	_, err := readKey(path)
	return err
}

// seal proves that a document comes from someone who can read the key, which only root and SlurmUser of a machine of the cluster can.
func seal(path string, document []byte, now time.Time) ([]byte, error) {
	key, err := readKey(path)
	if err != nil {
		return nil, fmt.Errorf("prove who is speaking: %w", err)
	}
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%s %d %d %x %s", proofForm, os.Getuid(), now.Unix(), nonce, base64.StdEncoding.EncodeToString(document))
	return fmt.Appendf(nil, "%s %x", text, mac(key, text)), nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Key opens proofs that were made with the same key, each once.
type Key struct {
	// Path is that of the key.
	Path string

	mu   sync.Mutex
	seen map[string]time.Time
}

// Open returns the document of a proof and the user id that its maker gives himself: whoever can read the key is believed.
func (k *Key) Open(_ context.Context, proof []byte) (document []byte, uid uint32, err error) {
	return k.open(proof, time.Now())
}

func (k *Key) open(proof []byte, now time.Time) (document []byte, uid uint32, err error) {
	key, err := readKey(k.Path)
	if err != nil {
		return nil, 0, err
	}
	text, tag, _ := cutLast(string(proof))
	given, err := hex.DecodeString(tag)
	if err != nil || !hmac.Equal(given, mac(key, text)) {
		return nil, 0, errors.New("no proof by the key of this cluster")
	}
	// Nobody but a holder of the key comes here.
	words := strings.Split(text, " ")
	if len(words) != 5 || words[0] != proofForm {
		return nil, 0, fmt.Errorf("no proof of the form %s", proofForm)
	}
	who, err1 := strconv.ParseUint(words[1], 10, 32)
	at, err2 := strconv.ParseInt(words[2], 10, 64)
	document, err3 := base64.StdEncoding.DecodeString(words[4])
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, 0, err
	}
	if age := now.Sub(time.Unix(at, 0)); age > proofAge || age < -proofAge {
		return nil, 0, fmt.Errorf("the proof was made %s ago: it is good for %s; are the clocks right?", age.Round(time.Second), proofAge)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for old, until := range k.seen {
		if now.After(until) {
			delete(k.seen, old)
		}
	}
	if _, again := k.seen[tag]; again {
		return nil, 0, errors.New("the proof was used before")
	}
	if k.seen == nil {
		k.seen = map[string]time.Time{}
	}
	k.seen[tag] = now.Add(2 * proofAge)
	return document, uint32(who), nil
}

func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, ' ')
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}
