package request

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/release"
)

// FuzzParseArgs reads the options of sbatch as a user types them, for each release that spells them in another way. What is left over are words of his, in their order.
func FuzzParseArgs(f *testing.F) {
	for _, line := range []string{"--gres=gpu:1\ntrain.sh", "-G\n2\n--constraint\na|b", "--gpus-per-task=a100:2\n--mem-per-gpu\n8G", "--gres", "-C", "--\n-G", "-Ggpu", "--gpus=9223372036854775808"} {
		f.Add(line, "slurm-wlm 22.05.8")
		f.Add(line, "slurm 24.11.5-1")
	}
	f.Fuzz(func(t *testing.T, line, version string) {
		v, err := release.Parse(version)
		if err == nil && (v.Major < 0 || v.Major > 99 || v.Micro > 999) {
			t.Fatalf("%q is %v", version, v)
		}
		args := strings.Split(line, "\n")
		r, rest := ParseArgs(args, v)
		at := 0
		for _, word := range rest {
			for at < len(args) && args[at] != word {
				at++
			}
			if at++; at > len(args) {
				t.Fatalf("%q leaves %q", args, rest)
			}
		}
		_ = r.String()
		for _, field := range Fields {
			_ = ParseList(r.Get(field)).String()
		}
		_ = r.Asks()
	})
}
