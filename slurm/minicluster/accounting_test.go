package minicluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestAccounting runs a job on a cluster with slurmdbd, and looks for anything that is left of it.
func TestAccounting(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: TestWithoutADatabase is the part for every change")
	}
	for _, release := range Releases() {
		t.Run(release, func(t *testing.T) { accounts(t, RootForTest(t, release)) })
	}
}

func accounts(t *testing.T, root string) {
	options := Default()
	options.Root, options.Accounting = root, true
	var err error
	if options.GPUPlugin, err = BuildGPUPlugin(t.Context(), options.Root, "gpumem", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	c := ForTest(t, options)
	id, err := c.Sbatch(t.Context(), DefaultUser, "--gpus=1", "--mem=200M", "--wrap", "GRESIZE_TEST_GPUMEM=7516192768 srun sleep 4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitJob(t.Context(), id, "COMPLETED", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.AccountedJob(t.Context(), id, time.Minute); err != nil {
		t.Fatal(err)
	}
	out, err := c.Run(t.Context(), "root", "sacct", "--noheader", "--parsable2", "--noconvert", "--jobs="+id, "--format=JobIDRaw,Account,State,AllocTRES,MaxRSS,TRESUsageInMax,TRESUsageInTot")
	if err != nil || !strings.Contains(out, id+"|"+Account+"|COMPLETED|") || !strings.Contains(out, "gres/gpu=1") {
		t.Errorf("%v\n%s", err, out)
	}
	// Slurm adds up what the processes of a task hold.
	if !strings.Contains(out, "gres/gpumem=7516192768") {
		t.Errorf("no gres/gpumem of 7 GiB:\n%s", out)
	}
	t.Log(out)
	// slurmdbd listens on every address that it has, which must be none of this machine's.
	tcp, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(tcp)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "0A" && strings.HasSuffix(fields[1], hexPort(c.databasePort)) {
			t.Errorf("slurmdbd listens on this machine: %s", line)
		}
	}
	c.Stop()
	if left := clusterProcesses(c.Dir()); len(left) > 0 {
		t.Errorf("left after Stop: %v", left)
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestWithoutADatabase: accounting is refused, with the way out, where there is nothing to run it with.
func TestWithoutADatabase(t *testing.T) {
	t.Setenv(ReleaseVariable, "")
	options := Default()
	options.Accounting = true
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "tools/setup slurm-24.11") {
		t.Errorf("without a root: %v", err)
	}
	options.Root = t.TempDir()
	if err := (&Cluster{opts: options}).checkAccounting(); err == nil || !strings.Contains(err.Error(), "mariadbd") {
		t.Errorf("without MariaDB: %v", err)
	}
}

func hexPort(port int) string { return fmt.Sprintf(":%04X", port) }
