package config

import "testing"

func TestSameAddress(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:1", "[::ffff:127.0.0.1]:1", true},
		{"127.0.0.1:1", "localhost:01", true},
		{"127.0.0.1:1", "[::1]:1", false},
		{"0.0.0.0:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "[::1]:1", false},
		{"[::]:1", "127.0.0.1:1", true},
		{":1", "10.0.0.1:1", true},
		{"node1:1", "NODE1:1", true},
		{"node1:1", "node2:1", false},
		{"node1:1", "0.0.0.0:1", true},
	} {
		if sameAddress(c.a, c.b) != c.same || sameAddress(c.b, c.a) != c.same {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.same)
		}
	}
}
