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
		t.Skip("run by make nightly: what a controller writes and reads is tested with every change, with one of them")
	}
	for _, release := range Releases() {
		t.Run(release, func(t *testing.T) { takesOver(t, RootForTest(t, release)) })
	}
}

func takesOver(t *testing.T, root string) {
	options := Default()
	options.Backup, options.Root = true, root
	options.Settings = map[string]string{"SlurmctldTimeout": "6"}
	c := ForTest(t, options)
	submitted := time.Now()
	before, err := c.Sbatch(t.Context(), DefaultUser, "--begin=now+1hour", "--wrap", "true")
	if err != nil {
		t.Fatal(err)
	}
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
