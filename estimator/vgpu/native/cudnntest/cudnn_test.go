// Package cudnntest tests how the virtual GPU sizes the workspaces of convolutions: the model, the text form of a
// convolution, and the client of the planning helper, all as the C code that runs in the traced process.
package cudnntest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	forward = 0
	dgrad   = 1
	wgrad   = 2

	float    = 0
	double   = 1
	half     = 2
	bfloat16 = 9

	fromPlanner = 0
	fromModel   = 1
	fromBound   = 2
)

// conv is a two-dimensional convolution with square images and filters.
type conv struct {
	op, dtype               int
	n, c, k                 int64
	in, filter, stride, pad int64
	groups                  int64
	channelsLast            bool
}

func (c conv) out() int64 { return (c.in+2*c.pad-c.filter)/c.stride + 1 }

func tensor(dtype int, n, c, edge int64, channelsLast bool) string {
	s := [4]int64{c * edge * edge, edge * edge, edge, 1}
	if channelsLast {
		s = [4]int64{c * edge * edge, 1, c * edge, c}
	}
	return fmt.Sprintf("%d 16 %d %d %d %d %d %d %d %d", dtype, n, c, edge, edge, s[0], s[1], s[2], s[3])
}

func (c conv) key() string {
	groups := max(c.groups, 1)
	return fmt.Sprintf("%d 2 0 1 0 %s %s %s %[5]d %[5]d %[5]d %[5]d %[6]d %[6]d 1 1", c.op,
		tensor(c.dtype, c.n, c.c, c.in, c.channelsLast), tensor(c.dtype, c.k, c.c/groups, c.filter, c.channelsLast),
		tensor(c.dtype, c.n, c.k, c.out(), c.channelsLast), c.pad, c.stride)
}

type plan struct{ bytes, notes int64 }

type answer struct {
	source int
	high   int64
	plans  []plan
	key    string
}

type driver struct {
	in     io.WriteCloser
	out    *bufio.Reader
	cmd    *exec.Cmd
	stderr strings.Builder
}

func build(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "driver")
	sources, err := filepath.Glob("../cudnn_workspace*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-o", program, "testdata/driver.c"}, sources...)
	if text, err := exec.Command("gcc", append(args, "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	return program
}

func start(t testing.TB, program string, env []string, version, major, minor int) *driver {
	t.Helper()
	d := &driver{cmd: exec.Command(program, strconv.Itoa(version), strconv.Itoa(major), strconv.Itoa(minor))}
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	d.cmd.Stderr = &d.stderr
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		d.in, err = d.cmd.StdinPipe()
	}
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *driver) stop() {
	d.in.Close()
	_ = d.cmd.Wait()
}

// ask sends a line; ok is false when it was refused as malformed.
func (d *driver) ask(line string) (a answer, ok bool, err error) {
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		return a, false, err
	}
	text, err := d.out.ReadString('\n')
	if err != nil || text == "bad\n" {
		return a, false, err
	}
	head, key, _ := strings.Cut(strings.TrimSpace(text), " key ")
	words := strings.Fields(head)
	if _, err := fmt.Sscanf(head, "source %d high %d plans", &a.source, &a.high); err != nil {
		return a, false, fmt.Errorf("%q: %w", text, err)
	}
	for _, w := range words[5:] {
		var p plan
		if _, err := fmt.Sscanf(w, "%d:%d", &p.bytes, &p.notes); err != nil {
			return a, false, err
		}
		a.plans = append(a.plans, p)
	}
	a.key = key
	return a, true, nil
}

func TestModel(t *testing.T) {
	program := build(t)
	last1x1 := conv{op: wgrad, n: 323, c: 320, k: 1280, in: 3, filter: 1, stride: 1}
	vgg := conv{op: wgrad, n: 64, c: 64, k: 64, in: 86, filter: 3, stride: 1, pad: 1}
	depthwise := conv{op: forward, n: 420, c: 96, k: 96, in: 21, filter: 7, stride: 1, pad: 3, groups: 96, channelsLast: true}
	resnet := conv{op: forward, dtype: half, n: 64, c: 64, k: 64, in: 56, filter: 3, stride: 1, pad: 1}
	with := func(c conv, change func(*conv)) conv { change(&c); return c }
	for _, tt := range []struct {
		name                  string
		version, major, minor int
		conv                  conv
		first                 int64
		source                int
	}{
		{"one filter per image", 90100, 8, 6, last1x1, 323 * 320 * 1280 * 4, fromModel},
		{"too many images for that", 90100, 8, 6, with(last1x1, func(c *conv) { c.n = 555 }), 0, fromModel},
		{"one pixel is no image", 90100, 8, 6, with(last1x1, func(c *conv) { c.in = 1 }), 0, fromModel},
		{"a filter too large for that", 90100, 8, 6, with(last1x1, func(c *conv) { c.c, c.k = 2048, 512 }), 0, fromModel},
		{"middling filters with more images", 90100, 8, 6, with(last1x1, func(c *conv) { c.c, c.k, c.n = 1152, 192, 600 }), 600 * 1152 * 192 * 4, fromModel},
		{"small filters never", 90100, 8, 6, with(last1x1, func(c *conv) { c.c, c.k = 160, 960 }), 0, fromModel},
		{"larger images never", 90100, 8, 6, with(last1x1, func(c *conv) { c.in = 6 }), 0, fromModel},
		{"none of it on Ada", 90100, 8, 9, last1x1, 0, fromModel},
		{"winograd of a large image", 90100, 8, 6, vgg, 571539456, fromModel},
		{"winograd without tensor cores", 91002, 7, 5, with(vgg, func(c *conv) { c.op = forward }), 571539456, fromModel},
		{"depthwise, channels last", 90100, 8, 9, depthwise, 8 * 420 * 96 * 21 * 21 * 4, fromModel},
		{"depthwise in newer releases", 91002, 8, 9, depthwise, 0, fromModel},
		{"fp16 copies into channels last", 90100, 8, 0, resnet, 16 + 2*(2*64*64*56*56+64*64*9), fromModel},
		{"whole vectors in a copy", 90100, 8, 0, with(resnet, func(c *conv) { c.c, c.k = 61, 63 }), 16 + 2*(2*64*64*56*56+64*64*9), fromModel},
		{"fp16 that is channels last", 90100, 8, 0, with(resnet, func(c *conv) { c.channelsLast = true }), 0, fromModel},
		{"bf16 on Hopper", 91900, 9, 0, with(resnet, func(c *conv) { c.dtype = bfloat16 }), 16 + 2*(2*64*64*56*56+64*64*9), fromModel},
		{"the first layer", 90100, 8, 6, conv{op: wgrad, n: 64, c: 3, k: 64, in: 224, filter: 7, stride: 2, pad: 3}, 0, fromModel},
		{"the first layer on Ada, few filters", 90100, 8, 9, conv{op: wgrad, n: 64, c: 3, k: 16, in: 86, filter: 3, stride: 2, pad: 1},
			16 + 64*4*(4*86*86+16*43*43), fromModel},
		{"fp64", 90100, 8, 6, with(resnet, func(c *conv) { c.dtype = double }), 0, fromBound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := start(t, program, nil, tt.version, tt.major, tt.minor)
			a, ok, err := d.ask(tt.conv.key())
			if err != nil || !ok {
				t.Fatalf("ok %v, err %v", ok, err)
			}
			if a.plans[0].bytes != tt.first || a.source != tt.source {
				t.Errorf("first plan %d from %d, want %d from %d (all: %v)", a.plans[0].bytes, a.source, tt.first, tt.source, a.plans)
			}
			if a.key != tt.conv.key() {
				t.Errorf("key came back as %q", a.key)
			}
		})
	}
}

// The figures are those that cuDNN 9.10 itself planned for a Tesla T4, batch 64.
func TestWinogradIsCuDNNs(t *testing.T) {
	d := start(t, build(t), nil, 91002, 7, 5)
	for _, tt := range []struct{ c, k, in, want int64 }{
		{64, 64, 22, 43057152}, {128, 128, 11, 23592960}, {256, 256, 6, 28311552}, {512, 512, 3, 47185920},
		{64, 64, 86, 571539456}, {64, 128, 43, 215285760}, {256, 512, 10, 82575360},
	} {
		for op := forward; op <= wgrad; op++ {
			a, ok, err := d.ask(conv{op: op, n: 64, c: tt.c, k: tt.k, in: tt.in, filter: 3, stride: 1, pad: 1}.key())
			if err != nil || !ok || a.plans[0].bytes != tt.want {
				t.Errorf("op %d %d->%d@%d: %v (%v, %v), want %d", op, tt.c, tt.k, tt.in, a.plans, ok, err, tt.want)
			}
		}
	}
}

// The figures are those that cuDNN 9.10 itself planned for an A100 in fp32: copies of whole vectors, of y only where it has none.
func TestCopiesAreCuDNNs(t *testing.T) {
	d := start(t, build(t), nil, 90100, 8, 0)
	for _, tt := range []struct{ n, c, k, in, forward, dgrad int64 }{
		{32, 98, 448, 112, 162176016, 881499152}, {30, 750, 275, 164, 3325362448, 3325362448}, {26, 64, 64, 24, 3981328, 7815184},
		{12, 209, 239, 210, 958625296, 958625296},
	} {
		c := conv{n: tt.n, c: tt.c, k: tt.k, in: tt.in, filter: 3, stride: 1, pad: 1}
		for op, want := range map[int]int64{forward: tt.forward, dgrad: tt.dgrad} {
			c.op = op
			if a, ok, err := d.ask(c.key()); err != nil || !ok || a.plans[0].bytes != want {
				t.Errorf("op %d %d->%d@%d: %v (%v, %v), want %d", op, tt.c, tt.k, tt.in, a.plans, ok, err, want)
			}
		}
		c.op = wgrad
		if a, ok, err := d.ask(c.key()); err != nil || !ok || a.plans[0].bytes < tt.dgrad || a.plans[0].bytes > tt.dgrad+8<<20 {
			t.Errorf("filter gradient %d->%d@%d: %v (%v, %v), want a little more than %d", tt.c, tt.k, tt.in, a.plans, ok, err, tt.dgrad)
		}
	}
}

func TestEveryAnswerIsUsable(t *testing.T) {
	program := build(t)
	var drivers []*driver
	for _, v := range [][3]int{{8902, 7, 0}, {90100, 8, 6}, {91002, 8, 0}, {91900, 9, 0}} {
		drivers = append(drivers, start(t, program, nil, v[0], v[1], v[2]))
	}
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SampledFrom([]int64{1, 1, 2, 32}).Draw(t, "groups")
		c := conv{
			op: rapid.IntRange(forward, wgrad).Draw(t, "op"), dtype: rapid.SampledFrom([]int{float, double, half, bfloat16}).Draw(t, "dtype"),
			n: rapid.Int64Range(1, 4096).Draw(t, "n"), c: groups * rapid.Int64Range(1, 2048).Draw(t, "c"), k: groups * rapid.Int64Range(1, 2048).Draw(t, "k"),
			in: rapid.Int64Range(7, 1<<11).Draw(t, "in"), filter: rapid.SampledFrom([]int64{1, 3, 7}).Draw(t, "filter"),
			stride: rapid.Int64Range(1, 3).Draw(t, "stride"), groups: groups, channelsLast: rapid.Bool().Draw(t, "channelsLast"),
		}
		for _, d := range drivers {
			a, ok, err := d.ask(c.key())
			if err != nil || !ok {
				t.Fatalf("%s: ok %v, err %v, %s", c.key(), ok, err, d.stderr.String())
			}
			if last := a.plans[len(a.plans)-1]; last.bytes != 0 {
				t.Fatalf("no way out without workspace: %v", a.plans)
			}
			for _, p := range a.plans {
				if p.bytes < 0 {
					t.Fatalf("negative: %v", a.plans)
				}
			}
			if a.high < a.plans[0].bytes {
				t.Fatalf("high %d below the first of %v", a.high, a.plans)
			}
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add(conv{n: 1, c: 8, k: 8, in: 8, filter: 3, stride: 1}.key())
	f.Add("0 2 0 1 0 0 16 -1 8 8 8")
	f.Add("2 3 0 1 0 0 16 9223372036854775807 1 1 1 1 1 1 1 1 1")
	f.Add("0 0 0 0 0")
	d := start(f, build(f), nil, 90100, 8, 6)
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n\x00") || len(line) > 4000 {
			return
		}
		a, ok, err := d.ask(line)
		if err != nil {
			t.Fatalf("%q ended it: %v %s", line, err, d.stderr.String())
		}
		if !ok {
			return
		}
		again, ok, err := d.ask(a.key)
		if err != nil || !ok || again.key != a.key {
			t.Fatalf("%q became %q became %q (%v, %v)", line, a.key, again.key, ok, err)
		}
	})
}

// helper writes a planning helper whose answers come from a shell script, and a libcudnn for it to be found.
func helper(t *testing.T, afterStart string) []string {
	t.Helper()
	dir := t.TempDir()
	// As the real one: leave at once, go on in a child that owns the socket.
	script := "#!/bin/sh\nexec 3<&0\n( exec <&3; read description; " + afterStart + " ) &\nexit 0\n"
	for name, text := range map[string]string{"vgpu/gresize-cudnn-plan": script, "lib/libcudnn.so.9": "not a library"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"GRESIZE_VGPU_DIR=" + filepath.Join(dir, "vgpu"), "LD_LIBRARY_PATH=" + filepath.Join(dir, "lib")}
}

func TestPlanner(t *testing.T) {
	program := build(t)
	c := conv{op: wgrad, n: 323, c: 320, k: 1280, in: 3, filter: 1, stride: 1}
	modelled := int64(323 * 320 * 1280 * 4)
	for _, tt := range []struct {
		name, script string
		source       int
		first        int64
		plans        int
	}{
		{"answers", "echo ready 91002; while read line; do echo 'plans 2 4096:1 512:16'; done", fromPlanner, 4096, 3},
		{"answers with a plan that needs nothing", "echo ready 91002; while read line; do echo 'plans 2 4096:1 0:0'; done", fromPlanner, 4096, 2},
		{"promises more than it gives", "echo ready 91002; while read line; do echo 'plans 9 4096:1'; done", fromModel, modelled, 2},
		{"negative size", "echo ready 91002; while read line; do echo 'plans 1 -5:1'; done", fromModel, modelled, 2},
		{"knows no plan", "echo ready 91002; while read line; do echo 'none no_plan'; done", fromModel, modelled, 2},
		{"is too old", "echo ready 90100; while read line; do echo 'plans 1 4096:1'; done", fromModel, modelled, 2},
		{"refuses", "echo failed device_description_refused", fromModel, modelled, 2},
		{"dies at once", "exit 1", fromModel, modelled, 2},
		{"dies at the first question", "echo ready 91002; read line; exit 1", fromModel, modelled, 2},
		{"never ends its line", "echo ready 91002; read line; yes y | tr -d '\\n'", fromModel, modelled, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := start(t, program, helper(t, tt.script), 90100, 8, 6)
			for range 2 { // the second answer comes from the table
				a, ok, err := d.ask(c.key())
				if err != nil || !ok {
					t.Fatalf("ok %v, err %v", ok, err)
				}
				if a.source != tt.source || a.plans[0].bytes != tt.first || len(a.plans) != tt.plans {
					t.Errorf("source %d plans %v, want source %d, first %d, %d plans", a.source, a.plans, tt.source, tt.first, tt.plans)
				}
			}
		})
	}
}

func TestPlannerSeesNoLoaderSettings(t *testing.T) {
	env := helper(t, `echo ready 91002; while read line; do echo "plans 1 ${#LD_LIBRARY_PATH}${#LD_AUDIT}${#LD_PRELOAD}7:0"; done`)
	d := start(t, build(t), env, 90100, 8, 6)
	a, ok, err := d.ask(conv{n: 1, c: 8, k: 8, in: 8, filter: 3, stride: 1}.key())
	if err != nil || !ok || a.plans[0].bytes != 7 {
		t.Fatalf("lengths of the loader's variables and a 7: %v (%v, %v)", a.plans, ok, err)
	}
}
