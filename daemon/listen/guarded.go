package listen

import (
	"net"
	"slices"
	"sync"
)

// Guarded keeps so many connections at most, of an address that strangers reach. Where one more comes, the oldest of the machine with the most is closed for it, unless it
// was trusted: whoever opens connections and asks nothing stands in nobody's way.
func Guarded(l net.Listener, connections int) net.Listener {
	return &guarded{Listener: l, most: connections, strangers: map[string][]*Guest{}}
}

type guarded struct {
	net.Listener
	most int

	mu sync.Mutex
	// open are all connections, strangers those of them that nobody trusts, by machine, the oldest first.
	open      int
	strangers map[string][]*Guest
}

// Guest is a connection of a guarded listener.
type Guest struct {
	net.Conn
	guard *guarded
	host  string
	gone  bool
}

// Accept waits for a connection.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			host = c.RemoteAddr().String()
		}
		guest := &Guest{Conn: c, guard: g, host: host}
		victim, room := g.admit(guest)
		if victim != nil {
			_ = victim.Conn.Close()
		}
		if room {
			return guest, nil
		}
		_ = c.Close()
	}
}

// admit takes a connection in, and says which has to go for it; there is no room where all others are trusted.
func (g *guarded) admit(guest *Guest) (victim *Guest, room bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= g.most {
		crowd := ""
		for host, of := range g.strangers {
			if len(of) > len(g.strangers[crowd]) {
				crowd = host
			}
		}
		if len(g.strangers[crowd]) == 0 {
			return nil, false
		}
		victim = g.strangers[crowd][0]
		g.leave(victim)
	}
	g.open++
	g.strangers[guest.host] = append(g.strangers[guest.host], guest)
	return victim, true
}

// leave takes a connection out of all accounts, once.
func (g *guarded) leave(c *Guest) {
	if c.gone {
		return
	}
	c.gone = true
	g.open--
	g.forget(c)
}

func (g *guarded) forget(c *Guest) {
	of := g.strangers[c.host]
	if i := slices.Index(of, c); i >= 0 {
		of = slices.Delete(of, i, i+1)
	}
	if g.strangers[c.host] = of; len(of) == 0 {
		delete(g.strangers, c.host)
	}
}

// Trust keeps a connection from being closed for another, until it is told that this is over.
func (c *Guest) Trust() (over func()) {
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	if !c.gone {
		c.guard.forget(c)
	}
	return func() {
		c.guard.mu.Lock()
		defer c.guard.mu.Unlock()
		if !c.gone {
			c.guard.strangers[c.host] = append(c.guard.strangers[c.host], c)
		}
	}
}

// Close gives the place back.
func (c *Guest) Close() error {
	c.guard.mu.Lock()
	c.guard.leave(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}
