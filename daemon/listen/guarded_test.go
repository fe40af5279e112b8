package listen

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestGuarded: a hundred connections that ask nothing stay within the bound, the oldest go, and one that is trusted stays.
func TestGuarded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 8
	l := Guarded(inner, most)
	defer l.Close()
	accepted := make(chan *Guest, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c.(*Guest)
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	closed := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err == io.EOF
	}
	kept := dial()
	over := (<-accepted).Trust()
	var strangers []net.Conn
	for range 100 {
		strangers = append(strangers, dial())
		<-accepted
	}
	if closed(kept) {
		t.Error("the trusted one was closed")
	}
	open := 0
	for _, c := range strangers[:100-most+1] {
		if !closed(c) {
			open++
		}
	}
	if open != 0 || closed(strangers[99]) || closed(strangers[100-most+1]) {
		t.Errorf("%d of the oldest are open, or the newest are closed", open)
	}
	g := l.(*guarded)
	g.mu.Lock()
	if g.open != most || len(g.strangers["127.0.0.1"]) != most-1 {
		t.Errorf("%d open, %d strangers", g.open, len(g.strangers["127.0.0.1"]))
	}
	g.mu.Unlock()
	// Whose word is over is a stranger again, the newest.
	over()
	for range most {
		dial()
		<-accepted
	}
	if !closed(kept) {
		t.Error("trusted for ever")
	}
}
