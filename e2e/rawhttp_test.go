package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
)

// statusLine begins an answer, wherever it stands in what a connection says.
var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d{3}) `)

// spoken sends bytes to an address and returns the status of each answer and all that was said, until the other side closes, has said all, or says nothing for a limit.
func spoken(t *testing.T, address, request string, limit time.Duration) (statuses []int, all string) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(limit))
	go func() { _, _ = io.WriteString(connection, request) }() // the other side may close before it has heard all
	var heard bytes.Buffer
	for piece := make([]byte, 64<<10); heard.Len() < 16<<20; {
		n, err := connection.Read(piece)
		heard.Write(piece[:n])
		if err != nil {
			break
		}
		_ = connection.SetReadDeadline(time.Now().Add(2 * time.Second)) // more than one answer, if there are more
	}
	for _, m := range statusLine.FindAllStringSubmatch(heard.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		statuses = append(statuses, n)
	}
	return statuses, heard.String()
}

// TestHostileWebClient speaks to the page of decisions and to the probes' address of a real gresized in bytes that no browser sends: requests within requests, lengths that lie, names, paths,
// methods, other protocols, what is large and what is slow. Nothing is answered that was not asked for in form, both stay in service, and the daemon stays small.
func TestHostileWebClient(t *testing.T) {
	page := freeAddress(t)
	s := newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: "enforce", Hold: time.Minute, Config: fmt.Sprintf("[web]\nlisten = %q\n", page)})
	before, _ := ofProcess(t, s.DaemonPID())
	var wait sync.WaitGroup
	const host = "Host: localhost\r\n"
	const inner = "GET /report HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, a := range []struct {
		name, request string
		// fine is how many requests may be answered with 200; every other answer is a refusal.
		fine int
	}{
		{"a request in the body of one with two lengths", "GET / HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 43\r\n\r\n" + inner, 0},
		{"a request behind chunks, with a length", "GET / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, 0},
		{"a request in a body", "GET / HTTP/1.1\r\n" + host + "Content-Length: 43\r\n\r\n" + inner, 0},
		{"a transfer encoding of another name", "GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner, 0},
		{"two transfer encodings", "GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner, 0},
		{"a blank before the colon", "GET / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner, 0},
		{"a length with a sign", "GET / HTTP/1.1\r\n" + host + "Content-Length: +43\r\n\r\n" + inner, 0},
		{"chunks of a length that overflows", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + inner, 0},
		{"a line break in a header", "GET / HTTP/1.1\r\nHost: localhost\r\n folded: evil.example\r\n\r\n", 0},
		{"a zero in a header", "GET / HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", 0},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 0},
		{"no host, of an old protocol", "GET / HTTP/1.0\r\n\r\n", 0},
		{"two hosts", "GET / HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n", 0},
		{"another site's name for this address", "GET / HTTP/1.1\r\nHost: evil.example:" + page[strings.LastIndexByte(page, ':')+1:] + "\r\n\r\n", 0},
		{"a name below ours", "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 0},
		{"a name with a user in it", "GET / HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n", 0},
		{"this address in another spelling", "GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n", 0},
		{"another site in the request's line", "GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a proxy", "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", 0},
		{"a form of another site", "POST / HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 0},
		{"other methods", "PUT / HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\nDELETE /row/1 HTTP/1.1\r\n" + host + "\r\nTRACE / HTTP/1.1\r\n" + host + "\r\nOPTIONS * HTTP/1.1\r\n" + host + "\r\nget / HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a method in a header", "POST / HTTP/1.1\r\n" + host + "X-HTTP-Method-Override: GET\r\nContent-Length: 0\r\n\r\n", 0},
		{"paths upwards", "GET /../../../../etc/passwd HTTP/1.1\r\n" + host + "\r\n", 0},
		{"paths upwards, written otherwise", "GET /style.css/%2e%2e/%2e%2e/gresized HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a path with a zero", "GET /row/1%00.css HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a path with a backslash", "GET /..\\..\\etc\\passwd HTTP/1.1\r\n" + host + "\r\n", 0},
		{"no path", "GET evil HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a row out of range", "GET /row/99999999999999999999 HTTP/1.1\r\n" + host + "\r\n", 0},
		{"the folder of the pages", "GET /pages/list.html HTTP/1.1\r\n" + host + "\r\n", 0},
		{"the profiler of Go programs", "GET /debug/pprof/heap HTTP/1.1\r\n" + host + "\r\n", 0},
		{"figures for Prometheus", "GET /metrics HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a web socket", "GET /gone HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", 0},
		{"another protocol", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
		{"a protocol to come", "GET / HTTP/9.9\r\n" + host + "\r\n", 0},
		{"no protocol at all", "GET /\r\n", 0},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 200), 0},
		{"a header of a megabyte", "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 0},
		{"fifty thousand headers", "GET / HTTP/1.1\r\n" + host + strings.Repeat("X: a\r\n", 50_000) + "\r\n", 0},
		{"a path of a megabyte", "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a question of a megabyte", "GET /?user=" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n" + host + "\r\n", 0},
		{"a body that is promised", "POST /v1/epilog HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 0},
		{"five hundred requests and no ear", strings.Repeat("GET /row/77777 HTTP/1.1\r\n"+host+"\r\n", 500), 0},
		{"a request that does not end", "GET / HTTP/1.1\r\n" + host, 0},
	} {
		for where, address := range map[string]string{"the page": page, "the probes' address": s.probesAddress()} {
			wait.Go(func() {
				begun := time.Now()
				statuses, all := spoken(t, address, a.request, 15*time.Second)
				fine := 0
				for _, status := range statuses {
					if status >= 200 && status < 300 {
						fine++
					}
				}
				if fine > a.fine || strings.Contains(all, "root:") || slices.Contains(statuses, http.StatusSwitchingProtocols) || len(statuses) == 0 && time.Since(begun) > 14*time.Second {
					t.Errorf("%s, %s: %v after %s\n%.300q", where, a.name, statuses, time.Since(begun).Round(time.Millisecond), all)
				}
			})
		}
	}
	wait.Wait()
	// Four hundred who connect and say nothing, or one letter at a time, keep nobody out: the reader's page comes at once.
	for i := range 400 {
		c, err := net.Dial("tcp", page)
		must(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, _ = io.WriteString(c, "G")
		}
	}
	longest := time.Duration(0)
	for range 20 {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		begun := time.Now()
		response, err := client.Get("http://" + page + "/")
		must(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if longest = max(longest, time.Since(begun)); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("the page: %s %v", response.Status, err)
		}
	}
	after, descriptors := ofProcess(t, s.DaemonPID())
	t.Logf("the page comes within %s beside 400 silent connections; gresized has %.1f MiB, %.1f before, and %d descriptors", longest.Round(time.Millisecond), after, before, descriptors)
	if longest > 3*time.Second || after > before+64 || healthAt(s.MetricsPath()) != "ok" {
		t.Errorf("the page took %s, gresized %.1f MiB, health %s", longest, after, healthAt(s.MetricsPath()))
	}
}
