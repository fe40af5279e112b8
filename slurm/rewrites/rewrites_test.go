package rewrites

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
)

var update = flag.Bool("update", false, "write docs/rewrites.md anew, for every release that is here")

const page = "../../docs/rewrites.md"

// releases are the roots to run the table in; empty is the Slurm of this machine.
var releases = []string{"20.11", "", "24.11"}

func build(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"-s", "-C", "../plugin", "OUT=" + dir}
	if root != "" {
		args = append(args, "SLURM_INCLUDE="+filepath.Join(root, "usr", "include"))
	}
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return filepath.Join(dir, "job_submit_gresize.so")
}

func rootOf(release string) string {
	if release == "" {
		return ""
	}
	return minicluster.RootDir(release)
}

// TestTable goes through the whole table on each release, in `make nightly`.
func TestTable(t *testing.T) {
	if !*update && os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // TestDroppedVariables is the part for every change
	}
	written := Head
	for _, release := range releases {
		root := rootOf(release)
		version, rows, err := Run(t.Context(), Options{Root: root, Plugin: build(t, root)})
		if err != nil {
			t.Fatal(err)
		}
		section := Markdown(version, rows)
		written += "\n" + section
		t.Logf("%s", section)
		for _, r := range rows {
			trusted(t, version.String(), r)
		}
		if !*update {
			compare(t, section, Section(read(t), version))
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// trusted is what must hold of every row, whatever the page says: what gresize changes runs, and could have been taken back.
func trusted(t *testing.T, version string, r Row) {
	t.Helper()
	if strings.HasPrefix(r.Outcome, "left alone: ") || r.Outcome == "is that already" {
		return
	}
	if r.Outcome != Runs && r.Outcome != Restored || r.Undone != "yes" || !strings.HasPrefix(r.Srun, "ok") {
		t.Errorf("%s: %s to %s: %s, taken back: %s, srun: %s", version, r.Asked, r.Target, r.Outcome, r.Undone, r.Srun)
	}
}

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	wanted := map[string]bool{}
	for line := range strings.Lines(want) {
		wanted[line] = true
	}
	for line := range strings.Lines(got) {
		if !wanted[line] {
			t.Errorf("not in %s:\n%s", page, line)
		}
		delete(wanted, line)
	}
	for line := range wanted {
		if line != "\n" {
			t.Errorf("only in %s:\n%s", page, line)
		}
	}
}

// everyChange are the rows for every change, on the release that can give such jobs another GPU: a job whose environment contradicts it, one that asks for
// memory and CPUs by the GPU, and those that ask for a share already.
var everyChange = map[string][]string{
	"--gpus=big:1": {"type", "shard"}, "--gpus-per-node=1": {"type", "shard"}, "--gpus=1 --mem-per-gpu=100M": {"shard"},
	"SBATCH_GPUS=1 SBATCH_MEM_PER_GPU=100M SBATCH_CPUS_PER_GPU=1": {"shard"}, "--gres=shard:20": {"shard", "constraint"}, "--gres=mps:50": {"shard"},
}

// TestDroppedVariables is the part of the table for every change.
func TestDroppedVariables(t *testing.T) {
	root := rootOf("24.11")
	version, rows, err := Run(t.Context(), Options{Root: root, Plugin: build(t, root), Only: func(s Spelling, k Kind) bool {
		return slices.Contains(everyChange[s.String()], k.Name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 9 {
		t.Fatalf("%d rows", len(rows))
	}
	documented := Section(read(t), version)
	for _, r := range rows {
		trusted(t, version.String(), r)
		if row := strings.SplitAfter(Markdown(version, []Row{r}), "|---|\n")[1]; !strings.Contains(documented, row) {
			t.Errorf("not in %s:\n%s", page, row)
		}
	}
}
