package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gresize/gresize/slurm/minicluster"
)

// Python is the folder with the python of the environment that tools/setup makes for a release of PyTorch.
func Python(torch string) string {
	cache := os.Getenv("GRESIZE_CACHE")
	if cache == "" {
		cache = "/var/cache/gresize"
	}
	return filepath.Join(cache, "venv-torch-"+torch, "bin")
}

// CopyScripts puts the job scripts of folders, and the programs that they start, into the user's folder.
func (s *Site) CopyScripts(folders ...string) error {
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		copied := 0
		for _, pattern := range []string{"*.py", "*.sh"} {
			files, err := filepath.Glob(filepath.Join(folder, pattern))
			if err != nil {
				return err
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o755); err != nil {
					return err
				}
				copied++
			}
		}
		if copied == 0 {
			return fmt.Errorf("site: no script in %s", folder)
		}
	}
	return nil
}

// Sbatch submits as a user who has activated the environment of a python, with further NAME=value entries, and returns the job's id and what sbatch printed.
func (s *Site) Sbatch(ctx context.Context, python string, env []string, args ...string) (id, printed string, err error) {
	cmd, err := s.Cluster.Command(ctx, minicluster.DefaultUser, "sbatch", args...)
	if err != nil {
		return "", "", err
	}
	cmd.Env = append(append(cmd.Env, "PATH="+python+":"+s.bin+":/usr/local/bin:/usr/bin:/bin"), env...)
	out, err := cmd.CombinedOutput()
	printed = strings.TrimSpace(string(out))
	if err != nil {
		return "", printed, fmt.Errorf("sbatch %s: %w: %s", strings.Join(args, " "), err, printed)
	}
	fields := strings.Fields(printed)
	if len(fields) == 0 {
		return "", printed, fmt.Errorf("sbatch %s: it printed nothing", strings.Join(args, " "))
	}
	return fields[len(fields)-1], printed, nil
}

// Output is what a job has written to a file in its user's folder.
func (s *Site) Output(name string) (string, error) {
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	return string(data), err
}
