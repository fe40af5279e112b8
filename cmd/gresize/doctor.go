package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/doctor"
	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/internal/printable"
)

// schemaDoctor names the JSON form of `gresize doctor --json`.
const schemaDoctor = "gresize.doctor/1"

func newDoctorCommand() *cobra.Command {
	o := doctor.Options{Config: "/etc/gresize/gresize.toml", User: os.Getenv("SUDO_USER"), Python: "python3"}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation end to end, and name the next step",
		Long: `Follows a job through an installation, on the controller and as root: the
configuration, the plugin, slurmctld, gresized and its submit socket, gresize-launch,
the partition of the probes, munge, a probe of a small program on a node (as --user,
with --python), the decision log and the page. Nothing is changed; the probe is an
srun of a few minutes at most. The last line is the one next step. The exit status is
1 when something does not work.`,
		Example: "  sudo gresize doctor\n  gresize doctor --user alice --python /home/alice/venv/bin/python",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Gresize, err = os.Executable(); err != nil {
				return err
			}
			o.Slurmctld, _ = findSlurmctld() // that there is none is a finding
			o.Plugin, _ = findPlugin()
			report := doctor.Check(cmd.Context(), o)
			if asJSON {
				if err := printJSON(cmd, struct {
					Schema string `json:"schema"`
					doctor.Report
				}{schemaDoctor, report}); err != nil {
					return err
				}
			} else {
				out := cmd.OutOrStdout()
				writeFindings(out, report.Findings)
				fmt.Fprintf(out, "\nnext: %s\n", printable.Text(orNothing(report.Next)))
			}
			if finding.Refused(report.Findings) {
				return &statusError{code: exitError}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Config, "config", o.Config, "the configuration `FILE` of gresized")
	flags.StringVar(&o.User, "user", o.User, "the `NAME` of an ordinary user as whom a probe is tried on a node (default: who called sudo)")
	flags.StringVar(&o.Python, "python", o.Python, "the `PROGRAM` with which that user's jobs run")
	flags.BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}

func orNothing(next string) string {
	if next == "" {
		return "nothing: every check passed"
	}
	return next
}

// writeFindings writes a line for each, and the way out below it.
func writeFindings(out io.Writer, all []finding.Finding) {
	for _, f := range all {
		fmt.Fprintf(out, "  %-6s  %s: %s\n", f.Level, f.Name, printable.Text(f.Text))
		if f.Setting != "" {
			fmt.Fprintf(out, "          to change it: %s\n", printable.Text(f.Setting))
		}
	}
}
