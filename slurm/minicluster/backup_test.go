package minicluster

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestBackup kills the primary slurmctld: the backup takes over with the jobs of the first, and gives way when it is back.
func TestBackup(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // TestBackupNeedsThisMachine is the part for every change
	}
	options := Default()
	options.Backup = true
	options.Settings = map[string]string{"SlurmctldTimeout": "6"}
	c := ForTest(t, options)
	before, err := c.Sbatch(t.Context(), DefaultUser, "--begin=now+1hour", "--wrap", "true")
	if err != nil {
		t.Fatal(err)
	}
	submitted := time.Now()
	// slurmctld writes its state every five seconds at most.
	if err := waitFor(t.Context(), time.Minute, func() (bool, error) {
		info, err := os.Stat(c.path("state/job_state"))
		return err == nil && info.ModTime().After(submitted), nil
	}); err != nil {
		t.Fatal(err)
	}
	ping := func(want string) {
		t.Helper()
		began, last := time.Now(), ""
		if err := waitFor(t.Context(), time.Minute, func() (bool, error) {
			short, cancel := context.WithTimeout(t.Context(), answerTimeout)
			defer cancel()
			last, _ = c.Run(short, "root", "scontrol", "ping")
			if !strings.Contains(last, want) {
				return false, nil
			}
			_, err := c.Run(short, "root", "squeue", "--noheader", "--jobs="+before)
			return err == nil, nil
		}); err != nil {
			t.Fatalf("%v\n%s", err, last)
		}
		t.Logf("%s after %s:\n%s", want, time.Since(began).Round(100*time.Millisecond), last)
	}
	ping("Slurmctld(backup) at gresize-ctl2 is UP")
	if err := c.KillController(); err != nil {
		t.Fatal(err)
	}
	ping("Slurmctld(primary) at gresize-ctl1 is DOWN")
	after, err := c.Sbatch(t.Context(), DefaultUser, "--wrap", "true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitJob(t.Context(), after, "COMPLETED", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.StartController(); err != nil {
		t.Fatal(err)
	}
	ping("Slurmctld(primary) at gresize-ctl1 is UP")
	if c.BackupPID() == 0 {
		t.Error("the backup has ended")
	}
}

// TestBackupNeedsThisMachine: two controllers are refused in a root of their own.
func TestBackupNeedsThisMachine(t *testing.T) {
	options := Default()
	options.Backup, options.Root = true, RootDir("24.11")
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "Slurm of this machine") {
		t.Errorf("%v", err)
	}
}
