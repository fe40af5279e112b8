package main

import (
	"fmt"
	"regexp"
	"strings"
)

// entry is a flag or a command with what is said of it.
type entry struct{ name, text string }

// help is what `gresize VERB --help` prints, in its parts.
type help struct {
	long            []string
	usage, examples []string
	commands, flags []entry
}

var (
	helpHeading = regexp.MustCompile(`^(Usage|Examples|Available Commands|Flags|Global Flags|Aliases):$`)
	helpFlag    = regexp.MustCompile(`^\s+((?:-\w, )?--[\w-]+(?: \S+)*)\s{3,}(\S.*)$`)
	helpCommand = regexp.MustCompile(`^  (\S+)\s+(\S.*)$`)
)

func parseHelp(text string) help {
	var h help
	part := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if m := helpHeading.FindStringSubmatch(line); m != nil {
			part = m[1]
			continue
		}
		switch part {
		case "":
			h.long = append(h.long, line)
		case "Usage":
			h.usage = append(h.usage, line)
		case "Examples":
			h.examples = append(h.examples, line)
		case "Available Commands":
			if m := helpCommand.FindStringSubmatch(line); m != nil {
				h.commands = append(h.commands, entry{m[1], m[2]})
			} else if line != "" {
				part = "the end"
			}
		case "Flags", "Global Flags":
			if m := helpFlag.FindStringSubmatch(line); m != nil {
				h.flags = append(h.flags, entry{m[1], m[2]})
			} else if strings.HasPrefix(line, " ") && len(h.flags) > 0 {
				h.flags[len(h.flags)-1].text += " " + strings.TrimSpace(line)
			} else if line != "" {
				part = "the end"
			}
		}
	}
	return h
}

// page prints the parts as a man page.
func (h help) page(name, short string) string {
	var b strings.Builder
	b.WriteString(title(name, 1))
	fmt.Fprintf(&b, "%s%s \\- %s\n", section("NAME"), escape(name), escape(short))
	b.WriteString(section("SYNOPSIS") + literal(h.usage))
	b.WriteString(section("DESCRIPTION") + prose(h.long))
	for _, list := range []struct {
		heading string
		entries []entry
	}{{"COMMANDS", h.commands}, {"OPTIONS", h.flags}} {
		if len(list.entries) > 0 {
			b.WriteString(section(list.heading))
			for _, e := range list.entries {
				b.WriteString(item(e.name, e.text))
			}
		}
	}
	if len(h.examples) > 0 {
		b.WriteString(section("EXAMPLES") + literal(h.examples))
	}
	b.WriteString(section("SEE ALSO"))
	if name == "gresize" {
		b.WriteString(".BR gresize.toml (5),\n.BR gresized (8)\n")
	} else {
		b.WriteString(".BR gresize (1)\n")
	}
	return b.String()
}
