package flags

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestTimes(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	limit := set.Duration("limit", time.Minute, "")
	Decimal(set)
	if err := set.Parse([]string{"--limit", "90s"}); err != nil || *limit != 90*time.Second {
		t.Errorf("%v %v", *limit, err)
	}
	for _, text := range []string{"5", "x", "", "99999999h"} {
		if err := set.Parse([]string{"--limit", text}); err == nil || !strings.Contains(err.Error(), "such as 90s") || *limit != 90*time.Second {
			t.Errorf("%q: %v %v", text, *limit, err)
		}
	}
}

func TestDecimal(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	n, small, big := set.Int("n", 7, ""), set.Uint32("small", 0, ""), set.Int64("big", 0, "")
	list, word := set.IntSlice("list", nil, ""), set.String("word", "", "")
	Decimal(set)
	if err := set.Parse([]string{"--n", "010", "--small", "089", "--big=-08", "--list", "1,2", "--word", "0x10"}); err != nil {
		t.Fatal(err)
	}
	if *n != 10 || *small != 89 || *big != -8 || len(*list) != 2 || *word != "0x10" {
		t.Errorf("%d %d %d %v %s", *n, *small, *big, *list, *word)
	}
	for _, c := range []struct{ text, says string }{{"0x10", "decimal digits"}, {"5_1", "scontrol show job 5_1"}, {"1_000", "task"}, {"", "decimal digits"}, {"99999999999999999999", "out of range"}} {
		if err := set.Parse([]string{"--n", c.text}); err == nil || !strings.Contains(err.Error(), c.says) || *n != 10 {
			t.Errorf("--n %q: %d, %v, want %q", c.text, *n, err, c.says)
		}
	}
}
