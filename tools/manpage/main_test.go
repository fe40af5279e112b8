package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPageOfAVerb(t *testing.T) {
	const text = `Sum up what was decided. "x" and a\b,
and more.

EXIT STATUS
  0  done
  1  an error

.dotted

Usage:
  gresize report [flags]

Examples:
  gresize report --since 30d

Available Commands:
  check       Tell whether it loads

Flags:
      --db FILE      read the log at FILE
                     or elsewhere
  -h, --help         help for report
      --plain        no value

Use "gresize report [command] --help" for more information about a command.
`
	const want = `.TH "GRESIZE\-REPORT" 1 "" "gresize" "gresize"
.nh
.ad l
.SH "NAME"
gresize\-report \- sum up
.SH "SYNOPSIS"
.nf
gresize report [flags]
.fi
.SH "DESCRIPTION"
Sum up what was decided. \(dqx\(dq and a\eb,
and more.
.SH "EXIT STATUS"
.nf
0  done
1  an error
.fi
.PP
\&.dotted
.SH "COMMANDS"
.TP
\fBcheck\fR
Tell whether it loads
.SH "OPTIONS"
.TP
\fB\-\-db FILE\fR
read the log at FILE or elsewhere
.TP
\fB\-h, \-\-help\fR
help for report
.TP
\fB\-\-plain\fR
no value
.SH "EXAMPLES"
.nf
gresize report \-\-since 30d
.fi
.SH "SEE ALSO"
.BR gresize (1)
`
	if diff := cmp.Diff(want, parseHelp(text).page("gresize-report", "sum up")); diff != "" {
		t.Error(diff)
	}
}

func TestMarkdown(t *testing.T) {
	const text = "# Configuration\n\nOne file, `x-y`, see [the table](a.md), **bold**, *start*.\n\n| key | default | means |\n|---|---|---|\n" +
		"| `a.b` | `\"x\"` | first \\| second |\n| `c` | – | ends. |\n\n## Opting out\n\n- one\n\n```\n.code\n```\n"
	const want = `.SH "DESCRIPTION"
One file, \fBx\-y\fR, see the table, \fBbold\fR, \fIstart\fR.
.TP
\fBa.b\fR
first | second. Default: \fB\(dqx\(dq\fR.
.TP
\fBc\fR
ends.
.SH "OPTING OUT"
.IP \(bu 2
one
.PP
.nf
\&.code
.fi
`
	if diff := cmp.Diff(want, markdown(text)); diff != "" {
		t.Error(diff)
	}
}
