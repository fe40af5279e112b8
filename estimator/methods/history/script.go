package history

import (
	"path"
	"strings"
)

// script is the program that a command runs: the first argument that is a file of Python or of a shell, the module of python -m, or the program
// itself where there is neither.
func script(arguments []string) string {
	for i, a := range arguments {
		if a == "-m" && i == 1 && len(arguments) > 2 && strings.HasPrefix(path.Base(arguments[0]), "python") {
			return arguments[2]
		}
		switch path.Ext(a) {
		case ".py", ".sh", ".bash", ".sbatch", ".slurm":
			if !strings.HasPrefix(a, "-") {
				return a
			}
		}
	}
	if len(arguments) > 0 && !strings.HasPrefix(path.Base(arguments[0]), "python") {
		return arguments[0]
	}
	return ""
}
