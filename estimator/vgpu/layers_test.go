package vgpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/modules"
)

// tableOf runs a case of testdata/layers.py and reads the table of modules that it left.
func tableOf(t *testing.T, release, name string) *modules.Table {
	t.Helper()
	o := runPython(t, release, 1, []string{"testdata/layers.py", name}, "GRESIZE_PROBE_PARTS=modules")
	if o.failed || len(o.reports.Ranks) != 1 || !o.reports.Stopped {
		t.Fatalf("%s: %d ranks, stopped %t:\n%s", name, len(o.reports.Ranks), o.reports.Stopped, o.output)
	}
	table, err := modules.Read(o.reports.Ranks[0].Parts[trace.PartModules])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return table
}

// module finds one module of a network.
func module(t *testing.T, n modules.Network, path string) modules.Module {
	t.Helper()
	i := slices.IndexFunc(n.Modules, func(m modules.Module) bool { return m.Path == path })
	if i < 0 {
		t.Fatalf("%s has no %q", n.Class, path)
	}
	return n.Modules[i]
}

func TestModules(t *testing.T) {
	t.Run("tied", func(t *testing.T) {
		table := tableOf(t, "2.6.0", "tied")
		if len(table.Networks) != 2 || table.Networks[1].Calls != 4 { // the loss is made anew each time
			t.Fatalf("%d networks", len(table.Networks))
		}
		n := table.Networks[0]
		if n.Class != "Tied" || n.Batch != 4 || !n.WithGradient || n.Parameters != 1956 || n.Trainable != 1684 {
			t.Errorf("%+v", n.Holdings)
		}
		if b := module(t, n, "block.0"); b.CallsOnce != 3 || b.FLOPs != 2*28*16*16 || b.Trainable != 0 || b.Outputs[0][0] != 4 {
			t.Errorf("block: %+v", b)
		}
		if h := module(t, n, "head"); h.Parameters != 0 || h.TiedParameters != 1600 {
			t.Errorf("head: %+v", h)
		}
		if u := module(t, n, "unused"); u.Calls != 0 || u.Parameters != 68 || len(u.Outputs) != 0 {
			t.Errorf("unused: %+v", u)
		}
		if own := module(t, n, ""); own.Leaf || own.Parameters != 16 {
			t.Errorf("the module's own parameter: %+v", own)
		}
	})
	t.Run("gan", func(t *testing.T) {
		table := tableOf(t, "2.6.0", "gan")
		if len(table.Networks) != 3 || len(table.Optimizers) != 2 || table.Optimizers[0].StateMultiplier() != 1 || table.Optimizers[1].StateBytes != 0 {
			t.Fatalf("%d networks, optimizers %+v", len(table.Networks), table.Optimizers)
		}
		if up := module(t, table.Networks[0], "0"); up.Kind != modules.Conv || up.FLOPs != 2*5*8*4*4*4*16 {
			t.Errorf("transposed convolution: %+v", up)
		}
		if a := module(t, table.Networks[0], "2"); a.Kind != modules.Activation || !a.InPlace {
			t.Errorf("activation: %+v", a)
		}
		if n := table.Networks[1]; n.Calls != 11 || module(t, n, "0").CallsOnce != 1 {
			t.Errorf("the discriminator: %d calls", n.Calls)
		}
	})
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run("compiled "+release, func(t *testing.T) {
			table := tableOf(t, release, "compiled")
			if n := table.Networks[0]; !table.Compiled || n.Parameters != 2177 || len(n.Modules) != 3 || n.Modules[0].Calls != 0 || table.Optimizers[0].StateMultiplier() != 1 {
				t.Errorf("%+v", table)
			}
		})
	}
	t.Run("parallel", func(t *testing.T) {
		table := tableOf(t, "2.6.0", "parallel")
		if n := table.Networks[0]; n.Class != "DistributedDataParallel" || n.Batch != 8 || !strings.HasPrefix(n.Modules[0].Path, "module.") || n.Parameters != 2177 {
			t.Errorf("%+v", n)
		}
	})
}
