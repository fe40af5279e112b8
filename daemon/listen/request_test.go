package listen

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestBody has bodies that do not come whole: each answer says why in words of its own, without an address.
func TestBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Error(err)
			}
		}
		if body, ok := Body(w, r, 8); ok {
			w.Write(body)
		}
	}))
	defer server.Close()
	for _, c := range []struct {
		name, path, sent string
		length           string
		halfClosed       bool
		code             int
		says             string
	}{
		{"whole", "/", "12345678", "8", false, 200, "12345678"},
		{"too large", "/", "123456789", "9", false, 413, "larger than 8 bytes"},
		{"slow", "/slow", "123", "8", false, 408, "too slowly"},
		{"broken off", "/", "123", "8", true, 400, "broke off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST "+c.path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "+c.length+"\r\n\r\n"+c.sent); err != nil {
				t.Fatal(err)
			}
			if c.halfClosed {
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			answer, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			status, rest, _ := strings.Cut(string(answer), "\r\n")
			if !strings.HasSuffix(status, " "+http.StatusText(c.code)) || !strings.Contains(rest, c.says) || strings.Contains(rest, "127.0.0.1") {
				t.Errorf("%s", answer)
			}
		})
	}
}
