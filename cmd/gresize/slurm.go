package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/internal/regular"
	"github.com/gresize/gresize/slurm/loadcheck"
	"github.com/spf13/cobra"
)

// schemaSlurmCheck names the JSON form of `gresize slurm check --json`.
const schemaSlurmCheck = "gresize.slurm-check/1"

func newSlurmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slurm",
		Short: "Check the Slurm of this machine",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSlurmCheckCommand())
	return cmd
}

func newSlurmCheckCommand() *cobra.Command {
	var o loadcheck.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [PLUGIN]",
		Short: "Tell whether slurmctld will load the plugin, before it tries",
		Long: `Tells whether the slurmctld of this machine will load the plugin job_submit/gresize. With one that was
built for another release slurmctld does not start, so ask before a restart and after every upgrade of Slurm.
It also says whether slurmctld will take the commands that gresized uses, and, where it runs, whether squeue
and sacct print what gresized reads. Nothing is loaded and nothing is changed. The exit status is 1 when slurmctld must not be
started with the plugin, or when what was named cannot be read; a slurm.conf that is not in its usual place is a note.`,
		Example: "  gresize slurm check\n  gresize slurm check build/plugin/job_submit_gresize.so",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Slurmctld == "" {
				if o.Slurmctld, err = findSlurmctld(); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				o.Plugin = args[0]
			} else if o.Plugin, err = findPlugin(); err != nil {
				return err
			}
			if variable := os.Getenv("SLURM_CONF"); variable != "" && !cmd.Flags().Changed("conf") {
				o.Conf = variable
			}
			named := cmd.Flags().Changed("conf") || os.Getenv("SLURM_CONF") != ""
			var noConf error
			if o.Conf != "" {
				if noConf = regular.Check(o.Conf); noConf != nil {
					o.Conf = ""
				}
			}
			if o.Conf != "" && !cmd.Flags().Changed("scontrol") {
				// gresized may run on another machine, and the commands with it.
				o.Scontrol, _ = exec.LookPath("scontrol")
			}
			report, err := loadcheck.Check(cmd.Context(), o)
			if noConf != nil {
				report.Findings = append(report.Findings, finding.Finding{Level: finding.Note,
					Text: fmt.Sprintf("slurm.conf cannot be read, so it is not known whether slurmctld is told to load the plugin: %v (name it with --conf, or give --conf= where there is none)", noConf)})
			}
			if err != nil && named {
				return errors.Join(err, noConf)
			}
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(cmd, struct {
					Schema string `json:"schema"`
					loadcheck.Report
				}{schemaSlurmCheck, report}); err != nil {
					return err
				}
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), report.Plugin)
				for _, f := range report.Findings {
					fmt.Fprintf(cmd.OutOrStdout(), "  %-6s  %s\n", f.Level, f.Text)
				}
			}
			if report.Refused() || noConf != nil && named {
				return &statusError{code: exitError}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Slurmctld, "slurmctld", "", "the slurmctld that is to load the plugin (default: the one of this machine)")
	cmd.Flags().StringVar(&o.Scontrol, "scontrol", "", "the scontrol with which gresized asks: slurmctld refuses one of a newer release (default: the one of this machine; --scontrol= asks none)")
	cmd.Flags().StringVar(&o.Conf, "conf", "/etc/slurm/slurm.conf", "slurm.conf, to see whether it names the plugin; SLURM_CONF names another (--conf= reads none)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}

func findSlurmctld() (string, error) {
	for _, path := range []string{"/usr/sbin/slurmctld", "/usr/local/sbin/slurmctld", "/opt/slurm/sbin/slurmctld"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("slurmctld")
	if err != nil {
		return "", fmt.Errorf("found no slurmctld on this machine: name it with --slurmctld")
	}
	return path, nil
}

// findPlugin looks where the packages of Slurm keep their plugins.
func findPlugin() (string, error) {
	for _, dir := range []string{"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm"} {
		found, err := filepath.Glob(filepath.Join(dir, loadcheck.FileName))
		if err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("found no %s among Slurm's plugins: install the package gresize-slurm-plugin-RELEASE with the release of this slurmctld (slurmctld -V), or name the file", loadcheck.FileName)
}
