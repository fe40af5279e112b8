// Command manpage writes gresize's man pages: one for each verb from what the built program says of itself, and
// gresize.toml(5) from the manual's table of the configuration.
//
//	go run ./tools/manpage build/bin/gresize docs/configuration.md build/man
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: manpage GRESIZE CONFIGURATION.md FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "manpage:", err)
		os.Exit(1)
	}
}

func write(program, configuration, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := writeVerb(program, folder, nil, "the GPU that a job needs instead of the GPU that was guessed"); err != nil {
		return err
	}
	text, err := os.ReadFile(configuration)
	if err != nil {
		return err
	}
	page := title("gresize.toml", 5) + section("NAME") + "gresize.toml \\- the configuration of gresized\n" + markdown(string(text)) +
		section("SEE ALSO") + ".BR gresized (8),\n.BR gresize (1)\n"
	return os.WriteFile(filepath.Join(folder, "gresize.toml.5"), []byte(page), 0o644)
}

// writeVerb writes the page of one verb and of those below it.
func writeVerb(program, folder string, verb []string, short string) error {
	out, err := exec.Command(program, append(append([]string{}, verb...), "--help")...).Output()
	if err != nil {
		return fmt.Errorf("%s %s --help: %w", program, strings.Join(verb, " "), err)
	}
	name := strings.Join(append([]string{"gresize"}, verb...), "-")
	h := parseHelp(string(out))
	if err := os.WriteFile(filepath.Join(folder, name+".1"), []byte(h.page(name, short)), 0o644); err != nil {
		return err
	}
	for _, c := range h.commands {
		// What cobra brings along explains itself.
		if c.name == "help" || c.name == "completion" {
			continue
		}
		if err := writeVerb(program, folder, append(append([]string{}, verb...), c.name), c.text); err != nil {
			return err
		}
	}
	return nil
}
