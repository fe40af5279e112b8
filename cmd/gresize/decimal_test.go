package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDecimalFlags sets every flag of every verb that is a whole number.
func TestDecimalFlags(t *testing.T) {
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.HasPrefix(f.Value.Type(), "int") && !strings.HasPrefix(f.Value.Type(), "uint") {
				return
			}
			seen++
			name := cmd.CommandPath() + " --" + f.Name
			for text, want := range map[string]string{"010": "10", "0": "0", "000": "0", "123": "123", "089": "89"} {
				if err := f.Value.Set(text); err != nil || f.Value.String() != want {
					t.Errorf("%s %s: %s, %v, want %s", name, text, f.Value, err, want)
				}
			}
			for _, text := range []string{"5_1", "1_000", "0x10", "0b1", "0o7", "1e3", "", " 1", "1 ", "--1", "٣", "99999999999999999999"} {
				before := f.Value.String()
				if err := f.Value.Set(text); err == nil {
					t.Errorf("%s %q is taken for %s", name, text, f.Value)
				} else if f.Value.String() != before && text != "99999999999999999999" {
					t.Errorf("%s %q is refused and has changed the flag to %s", name, text, f.Value)
				}
			}
		})
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand())
	if seen < 10 {
		t.Errorf("only %d flags are whole numbers", seen)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"actual", "add", "--job", "5_1", "--gpu-memory", "1GiB"}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "scontrol show job 5_1") {
		t.Errorf("an array task: %d %s", code, errs.String())
	}
	errs.Reset()
	if code := run(t.Context(), []string{"actual", "add", "--job", "5", "--gpu-memory", "99999999TiB"}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "at most 1024 TiB") {
		t.Errorf("more than there is: %d %s", code, errs.String())
	}
}
