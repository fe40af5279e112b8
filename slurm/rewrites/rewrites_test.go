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
	"github.com/gresize/gresize/slurm/release"
)

var update = flag.Bool("update", false, "write docs/rewrites.md anew, with the releases that are here")

const page = "../../docs/rewrites.md"

func build(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "../plugin", "OUT="+dir, minicluster.IncludeArgument(root)).CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return filepath.Join(dir, "job_submit_gresize.so")
}

// TestTable goes through the whole table on each release, in `make nightly`.
func TestTable(t *testing.T) {
	if !*update && os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: TestDroppedVariables is the part for every change")
	}
	var all []Found
	for _, release := range minicluster.Releases() {
		t.Run(release, func(t *testing.T) {
			root := minicluster.RootForTest(t, release)
			version, rows, err := Run(t.Context(), Options{Root: root, Plugin: build(t, root)})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Found{version, rows})
			t.Logf("%s", Markdown(rows))
			for _, r := range rows {
				trusted(t, version.String(), r)
			}
			if !*update {
				compare(t, Markdown(rows), Section(read(t), version))
			}
		})
	}
	// The table above the sections says what they say.
	if again := Page(With(Read(read(t)), all)); *update {
		if err := os.WriteFile(page, []byte(again), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !t.Failed() && again != read(t) {
		t.Errorf("%s has the rows, but is not the page of tools/slurmroot/rewrites", page)
	}
}

// TestPage: the page of releases reads back as what it was printed from.
func TestPage(t *testing.T) {
	if text := read(t); Page(Read(text)) != text || len(Read(text)) < 4 {
		t.Errorf("%s is not the page of tools/slurmroot/rewrites: it has %d releases", page, len(Read(text)))
	}
	row := Row{Asked: "--gpus=1", Target: "type", Outcome: "a|b", Undone: "yes", Job: "TresPerJob=gres/gpu:1 Features=a|b", Srun: sees}
	found := []Found{{release.Version{Major: 24, Minor: 11, Micro: 5}, []Row{row}}, {release.Version{Major: 26, Minor: 5, Micro: 5}, []Row{row}}}
	if again := Read(Page(found)); !slices.EqualFunc(again, found, func(a, b Found) bool { return a.Version == b.Version && slices.Equal(a.Rows, b.Rows) }) {
		t.Errorf("%+v", again)
	}
}

// trusted is what must hold of every row, whatever the page says: what gresize changes runs, an srun in it sees a GPU, and it could have been taken back.
func trusted(t *testing.T, version string, r Row) {
	t.Helper()
	if strings.HasPrefix(r.Outcome, "left alone: ") || r.Outcome == "is that already" {
		return
	}
	if r.Outcome != Runs && r.Outcome != Restored && r.Outcome != Unsaid || r.Undone != "yes" || r.Srun != sees {
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
	for _, release := range minicluster.Releases() {
		t.Run(release, func(t *testing.T) { droppedVariables(t, minicluster.RootForTest(t, release)) })
	}
}

func droppedVariables(t *testing.T, root string) {
	version, rows, err := Run(t.Context(), Options{Root: root, Plugin: build(t, root), Only: func(s Spelling, k Kind) bool {
		return slices.Contains(everyChange[s.String()], k.Name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := 9
	if !release.Shards.In(version) {
		want -= 2 // it has no shards to ask for
	}
	if len(rows) != want {
		t.Fatalf("%d rows", len(rows))
	}
	documented := Section(read(t), version)
	for _, r := range rows {
		trusted(t, version.String(), r)
		if row := strings.SplitAfter(Markdown([]Row{r}), "|---|\n")[1]; !strings.Contains(documented, row) {
			t.Errorf("not in %s:\n%s", page, row)
		}
	}
}
