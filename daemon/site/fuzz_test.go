package site

import (
	"testing"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/slurm/request"
)

// FuzzSite reads configurations and the site's table in them. What is taken has rules that can be asked for any request.
func FuzzSite(f *testing.F) {
	f.Add("mode = \"shadow\"\n[[target]]\nfits = \"20GiB\"\nconstraint = \"gpu20\"\n[gpu.a100]\nprofile = \"a100-80\"\n")
	f.Add("[[target]]\nfits = \"1GiB\"\ngres = \"gpu:a100_3g.20gb:1\"\n[shard]\nper = \"1GiB\"\n")
	f.Add("[jobs]\nusers = [\"root\", \"4000000000\"]\nexcept_users = [\"nobody-of-this-name\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Parse("gresize.toml", text)
		if err != nil {
			return
		}
		s, unknown := New(c)
		if len(unknown) > 0 {
			return
		}
		_ = s.impossible()
		rules := s.Rules()
		for _, row := range rules.Rows {
			if row.FitsBytes <= 0 {
				t.Fatalf("a row that fits %d bytes", row.FitsBytes)
			}
		}
		_ = s.ProfileOf(request.Request{TresPerNode: "gres:gpu:a100:1", Features: "gpu80g&(a|b)"})
	})
}
