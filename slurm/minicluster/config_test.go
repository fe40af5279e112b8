package minicluster

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/release"
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
	c := &Cluster{dir: "/d", version: release.Version{Major: 22, Minor: 5, Micro: 8}, nodePorts: []int{1},
		opts: Options{Nodes: []Node{{Name: "g", CPUs: 1, RealMemoryMiB: 1, GPUs: 2, Shards: 10, Counted: []string{"vram:40"}}}}}
	want := "NodeName=g Name=gpu File=/d/dev/g/nvidia1\nNodeName=g Name=shard Count=5 File=/d/dev/g/nvidia1\n"
	if got := c.gresConf(); !strings.Contains(got, want) {
		t.Errorf("gres.conf:\n%s", got)
	}
	if got := c.slurmConf(); !strings.Contains(got, " Gres=gpu:2,shard:10,vram:40\n") {
		t.Errorf("slurm.conf:\n%s", got)
	}
}

func TestTaskProlog(t *testing.T) {
	c := &Cluster{dir: "/d", hasVGPUPrograms: true, opts: Options{VGPUDir: "/src/vgpu", Nodes: []Node{
		{Name: "gpu1", GPUs: 2, GPUProfile: []byte("x"), GPUEnv: []string{"NOTE=it's; $(touch /nonexistent)"}},
		{Name: "gpu2", GPUs: 1},
		{Name: "cpu1"},
	}}}
	script := c.taskProlog()
	const common = "export LD_AUDIT=/d/share/vgpu/gresize-audit.so\nexport LD_LIBRARY_PATH=/d/share/vgpu%s\nexport GRESIZE_VGPU_DIR=/d/share/vgpu\n" +
		"export TRITON_LIBCUDA_PATH=/d/share/vgpu\nexport GRESIZE_VGPU_COUNT=%c\n"
	on := func(list string, count string) string {
		return strings.NewReplacer("%s", list, "%c", count).Replace(common)
	}
	for _, test := range []struct {
		name string
		env  []string
		want string
	}{
		{"two GPUs", []string{"SLURMD_NODENAME=gpu1", "CUDA_VISIBLE_DEVICES=0"},
			on("", "2") + "export PATH=/d/share/vgpu-bin:/bin\nexport GRESIZE_VGPU_PROFILE=/d/gpu/gpu1.profile\nexport NOTE=it's; $(touch /nonexistent)\n"},
		{"the job's own libraries", []string{"SLURMD_NODENAME=gpu2", "CUDA_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/own lib:/b"},
			on(":/own lib:/b", "1") + "export PATH=/d/share/vgpu-bin:/bin\n"},
		{"a step of a job", []string{"SLURMD_NODENAME=gpu2", "CUDA_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/a:/d/share/vgpu", "PATH=/d/share/vgpu-bin:/bin"},
			strings.Replace(on("", "1"), "export LD_LIBRARY_PATH=/d/share/vgpu\n", "", 1)},
		{"no GPU given", []string{"SLURMD_NODENAME=gpu1"}, ""},
		{"no GPU there", []string{"SLURMD_NODENAME=cpu1", "CUDA_VISIBLE_DEVICES=0"}, ""},
		{"unknown node", []string{"CUDA_VISIBLE_DEVICES=0"}, ""},
	} {
		cmd := exec.Command("/bin/sh", "-euc", script)
		cmd.Env = append([]string{"PATH=/bin"}, test.env...)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != test.want {
			t.Errorf("%s: %v\ngot:\n%s\nwant:\n%s", test.name, err, out, test.want)
		}
	}
}
