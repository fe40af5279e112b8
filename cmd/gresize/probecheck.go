package main

import (
	"fmt"
	"os"

	"github.com/gresize/gresize/estimator/probe/nodecheck"
	"github.com/gresize/gresize/internal/printable"
	"github.com/spf13/cobra"
)

// schemaProbeCheck names the JSON form of `gresize probe check --json`.
const schemaProbeCheck = "gresize.probe-check/1"

func newProbeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check what probes meet on this machine",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProbeCheckCommand())
	return cmd
}

func newProbeCheckCommand() *cobra.Command {
	o := nodecheck.Options{Dir: ".", Python: "python3"}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Tell what of a probe will work on this node, and which setting is in the way",
		Long: `Tells what of a probe will work on this node, for the user who asks and the current folder, and names the
one setting to change where something will not. Everything is tried: a sandbox is made, a script writes in it, and
the Python that is named trains a small model on the virtual GPU. Nothing outside is changed. Ask on a node of the
partition of probes, as an ordinary user, with srun. The exit status is 1 when no probe works here.`,
		Example: "  srun -p cpu gresize probe check\n  gresize probe check --python ~/venv/bin/python",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Env = os.Environ()
			report, err := nodecheck.Check(cmd.Context(), o)
			if err != nil {
				return usageError(err)
			}
			if asJSON {
				if err := printJSON(cmd, struct {
					Schema string `json:"schema"`
					nodecheck.Report
				}{schemaProbeCheck, report}); err != nil {
					return err
				}
			} else {
				out := cmd.OutOrStdout()
				fmt.Fprintf(out, "%s, Linux %s, user %d, in %s\n", printable.Text(report.Node), printable.Text(report.Kernel), report.User, printable.Text(report.Dir))
				writeFindings(out, report.Findings)
			}
			if report.Refused() {
				return &statusError{code: exitError}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", o.Dir, "a folder from which jobs are submitted")
	cmd.Flags().StringVar(&o.Python, "python", o.Python, "the Python with which jobs run")
	cmd.Flags().StringVar(&o.URL, "url", "", "see, too, whether gresized is reached at this `URL` (probe.url)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}
