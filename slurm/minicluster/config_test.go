package minicluster

import (
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestCheckNodes(t *testing.T) {
	good := Node{Name: "gpu1", CPUs: 1, RealMemoryMiB: 1, GPUs: 2, Shards: 4, GPUEnv: []string{"A=b=c"}}
	with := func(change func(*Node)) []Node {
		n := good
		change(&n)
		return []Node{n}
	}
	if err := checkNodes([]Node{good}); err != nil {
		t.Fatal(err)
	}
	for name, nodes := range map[string][]Node{
		"none":              nil,
		"twice":             {good, good},
		"name":              with(func(n *Node) { n.Name = "a b" }),
		"no CPU":            with(func(n *Node) { n.CPUs = 0 }),
		"uneven shards":     with(func(n *Node) { n.Shards = 5 }),
		"shards of no GPU":  with(func(n *Node) { n.GPUs = 0 }),
		"type":              with(func(n *Node) { n.GPUType = "a100 File=/etc/passwd" }),
		"feature":           with(func(n *Node) { n.Features = []string{"x,y"} }),
		"environment":       with(func(n *Node) { n.GPUEnv = []string{"no value"} }),
		"environment lines": with(func(n *Node) { n.GPUEnv = []string{"A=b\nexport LD_PRELOAD=x"} }),
	} {
		if err := checkNodes(nodes); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestParseStat(t *testing.T) {
	got, ok := parseStat(7, "7 (a) b (c) S 3 7 9 0 -1")
	if want := (process{pid: 7, parent: 3, session: 9, name: "a) b (c"}); !ok || got != want {
		t.Errorf("got %+v %v, want %+v", got, ok, want)
	}
	for _, bad := range []string{"", "7 a S 3", "7 (a) S 3", ")(", "7 (a) S x 7 9"} {
		if _, ok := parseStat(7, bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestTwoGPUsShareTheShards(t *testing.T) {
	c := &Cluster{dir: "/d", opts: Options{Nodes: []Node{{Name: "g", CPUs: 1, RealMemoryMiB: 1, GPUs: 2, Shards: 10}}}, nodePorts: []int{1}}
	want := "NodeName=g Name=gpu File=/d/dev/g/nvidia1\nNodeName=g Name=shard Count=5 File=/d/dev/g/nvidia1\n"
	if got := c.gresConf(); !strings.Contains(got, want) {
		t.Errorf("gres.conf:\n%s", got)
	}
	if got := c.slurmConf(); !strings.Contains(got, " Gres=gpu:2,shard:10\n") {
		t.Errorf("slurm.conf:\n%s", got)
	}
}
