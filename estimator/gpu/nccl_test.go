package gpu

import "testing"

func TestNCCLBytes(t *testing.T) {
	for _, c := range []struct {
		id        string
		use       NCCLUse
		low, high int64
	}{
		{"a100-80", NCCLUse{}, 0, 0},
		{"a100-80", NCCLUse{Pairs: 1}, 544 * mib, 688 * mib},
		{"a100-80", NCCLUse{Groups: 1}, 688 * mib, 1536 * mib},
		{"h100", NCCLUse{Groups: 1, Peers: 7}, (688 + 7*447) * mib, (1536 + 7*447) * mib},
		{"h100", NCCLUse{Groups: 1, Peers: 63}, (688 + 7*447) * mib, (1536 + 7*447) * mib},
		{"a30", NCCLUse{Pairs: 1}, 544 * mib, 688 * mib},
		{"l40s", NCCLUse{Groups: 2}, 288 * mib, 2 * 321 * mib},
	} {
		p, err := Load(c.id)
		if err != nil {
			t.Fatal(err)
		}
		f := p.NCCLBytes(c.use)
		if f.Bytes != c.low || f.HighBytes/mib != c.high/mib || f.Source == "" {
			t.Errorf("%s %+v: %d to %d MiB, want %d to %d", c.id, c.use, f.Bytes/mib, f.HighBytes/mib, c.low/mib, c.high/mib)
		}
	}
}

func TestNCCLBytesStayWithinTheCard(t *testing.T) {
	p, err := Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	if f := p.NCCLBytes(NCCLUse{Groups: 1 << 30, Peers: 1 << 30}); f.Bytes > p.Total.Bytes || f.HighBytes > p.Total.Bytes || f.Bytes < 0 {
		t.Errorf("%+v", f)
	}
}
