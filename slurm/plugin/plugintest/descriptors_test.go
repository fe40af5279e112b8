package plugintest

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/wire"
)

// TestNoDescriptorIsKept counts what the stand-in for slurmctld has open before and after many submissions, answered, garbled and refused.
func TestNoDescriptorIsKept(t *testing.T) {
	hold := replyFrame(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"})
	for name, path := range map[string]string{
		"answers": serve(t, func(connection net.Conn) {
			if _, err := wire.ReadRequest(connection); err == nil {
				_, _ = connection.Write(hold)
			}
		}),
		"talks garbage": serve(t, func(connection net.Conn) {
			if _, err := wire.ReadRequest(connection); err == nil {
				_, _ = connection.Write([]byte("HTTP/1.1 400\r\n\r\n"))
			}
		}),
		"closes":  serve(t, func(net.Conn) {}),
		"refuses": closedSocket(t),
	} {
		d := start(t, shipped, fmt.Sprintf("socket=%s\ndeadline_ms=%d\n", path, time.Second.Milliseconds()))
		open := func() int {
			list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.process.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		submit := func() {
			d.tell("load") // a fresh breaker: every submission must reach the peer
			d.tell(gpuJob()...)
			d.submit()
		}
		submit()
		before := open()
		for range 50 {
			submit()
		}
		if after := open(); after != before {
			t.Errorf("%s: %d descriptors before 50 submissions, %d after", name, before, after)
		}
	}
}
