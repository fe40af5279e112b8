package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// newEstimatorCommand hands over to gresize-estimator, which has gRPC in it; this program is started too often to carry that.
func newEstimatorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "estimator list|run|check", Short: "List the bundled estimators; drive and check estimator plugins by hand",
		Long: "List the bundled estimators; drive and check estimator plugins by hand:\n\n" +
			"  gresize estimator list\n  gresize estimator run PLUGIN --bundle FILE --gpu NAME [-- ARGS]\n  gresize estimator check PLUGIN [-- ARGS]\n\ndocs/plugins.md is for authors of plugins.",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			program, err := findEstimatorProgram(self)
			if err != nil {
				return err
			}
			return fmt.Errorf("start %s: %w", program, syscall.Exec(program, append([]string{program}, args...), os.Environ()))
		},
	}
}

// findEstimatorProgram looks beside this program: in the build folder, and where it is installed.
func findEstimatorProgram(self string) (string, error) {
	prefix := filepath.Dir(filepath.Dir(self))
	for _, folder := range []string{"libexec", "libexec/gresize"} {
		program := filepath.Join(prefix, folder, "gresize-estimator")
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			return program, nil
		}
	}
	return "", errors.New("gresize-estimator is not installed beside this program: install the whole package, or run make build")
}
