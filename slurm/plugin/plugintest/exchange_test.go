package plugintest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/wire"
)

// What gresize_exchange() may say, as in exchange.h.
const (
	exchangeOK = iota
	_          // not asked, which this program never is
	exchangeUnreachable
	exchangeLate
	exchangeBroken
	exchangeGarbled
)

// buildExchangePeer compiles the receiving half of the plugin alone, with the sanitizers.
func buildExchangePeer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "exchange_peer")
	build := exec.Command("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
		"-o", program, "../exchange.c", "../codec.c", "../tests/exchange_peer.c")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build exchange_peer: %v\n%s", err, output)
	}
	return program
}

// TestExchangeTakesWholeRepliesOnly looks at the plugin's receiving half by itself: a reply is taken when its last byte has come and not before, and a length that no reply
// may have ends the exchange at once. Behind the decoder, which refuses most of what is cut short anyway, neither can be seen.
func TestExchangeTakesWholeRepliesOnly(t *testing.T) {
	const patience = 2 * time.Second
	program := buildExchangePeer(t)
	header := func(length int) []byte {
		return binary.BigEndian.AppendUint32([]byte{'G', 'R', 'S', 'Z', 0, wire.ProtocolVersion, 0, 2}, uint32(length))
	}
	body := func(length int) []byte { return bytes.Repeat([]byte{1}, length) }
	full := func(length int) []byte { return append(header(length), body(length)...) }
	for _, c := range []struct {
		name   string
		says   [][]byte
		stays  bool // the peer keeps the connection open after it has spoken
		result int
		length int
		atOnce bool // well before the deadline
	}{
		{"whole", [][]byte{full(100)}, true, exchangeOK, 100, true},
		{"empty body", [][]byte{full(0)}, true, exchangeOK, 0, true},
		{"largest", [][]byte{full(wire.MaxReplyBytes)}, true, exchangeOK, wire.MaxReplyBytes, true},
		{"in two pieces", [][]byte{full(100)[:50], full(100)[50:]}, true, exchangeOK, 100, true},
		{"header in two pieces", [][]byte{full(100)[:5], full(100)[5:]}, true, exchangeOK, 100, true},
		{"two at once", [][]byte{append(full(10), full(10)...)}, true, exchangeOK, 10, true},
		{"one byte is missing, and it closes", [][]byte{full(100)[:111]}, false, exchangeBroken, 100, true},
		{"one byte is missing, and it waits", [][]byte{full(100)[:111]}, true, exchangeLate, 100, false},
		{"the body is missing, and it closes", [][]byte{header(1)}, false, exchangeBroken, 1, true},
		{"one byte of the largest is missing", [][]byte{full(wire.MaxReplyBytes)[:12+wire.MaxReplyBytes-1]}, false, exchangeBroken, wire.MaxReplyBytes, true},
		{"one byte more than the largest", [][]byte{full(wire.MaxReplyBytes + 1)}, true, exchangeGarbled, wire.MaxReplyBytes + 1, true},
		{"claims one byte more than the largest", [][]byte{header(wire.MaxReplyBytes + 1)}, true, exchangeGarbled, wire.MaxReplyBytes + 1, true},
		{"claims 2 GiB", [][]byte{header(1 << 31)}, true, exchangeGarbled, 1 << 31, true},
		{"claims 4 GiB less one", [][]byte{header(1<<32 - 1)}, true, exchangeGarbled, 1<<32 - 1, true},
		{"another kind", [][]byte{append([]byte{'G', 'R', 'S', 'Z', 0, wire.ProtocolVersion, 0, 1}, 0, 0, 0, 0)}, true, exchangeGarbled, 0, true},
		{"half a header, and it closes", [][]byte{header(5)[:11]}, false, exchangeBroken, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := serve(t, func(connection net.Conn) {
				connection.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := connection.Read(make([]byte, 64)); err != nil {
					t.Error(err)
				}
				for _, piece := range c.says {
					if _, err := connection.Write(piece); err != nil {
						return // the plugin had heard enough
					}
					time.Sleep(2 * time.Millisecond)
				}
				for c.stays {
					if _, err := connection.Read(make([]byte, 64)); err != nil {
						return
					}
				}
			})
			began := time.Now()
			output, err := exec.Command(program, path, fmt.Sprint(patience.Milliseconds()), "32").CombinedOutput()
			took := time.Since(began)
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			var result, length, written int
			if _, err := fmt.Sscan(string(output), &result, &length, &written); err != nil {
				t.Fatalf("%q: %v", output, err)
			}
			if result != c.result || length != c.length {
				t.Errorf("result %d with a body of %d bytes, want %d and %d", result, length, c.result, c.length)
			}
			if early := took < patience; early != c.atOnce {
				t.Errorf("ended after %v, at once: %v, want %v", took, early, c.atOnce)
			}
			if most := wire.HeaderBytes + wire.MaxReplyBytes; written > most {
				t.Errorf("%d bytes were written, at most %d may be", written, most)
			}
		})
	}
}
