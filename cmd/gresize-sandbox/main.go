// Command gresize-sandbox makes the namespaces of a probe's sandbox where users
// may make none. Without the rights that an administrator gives to its file it
// does nothing. It takes no arguments and reads nothing: docs/security.md.
package main

import (
	"os"

	"github.com/gresize/gresize/estimator/probe/sandbox"
)

// stage is the program that builds the view; make install sets it where PREFIX is another.
var stage = "/usr/libexec/gresize/gresize-probe"

func main() { os.Exit(sandbox.Lend(stage)) }
