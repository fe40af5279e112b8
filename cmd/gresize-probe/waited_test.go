package main

import (
	"slices"
	"testing"

	"github.com/gresize/gresize/daemon/launch"
)

// TestWhatWaitedGetsItsNameBack: the script finds the variables that gresize-launch kept from the shell under their own names, and neither the key nor the address.
func TestWhatWaitedGetsItsNameBack(t *testing.T) {
	url, key, rest := takeSecrets([]string{"A=1", launch.LaterPrefix + "LD_PRELOAD=/opt/lib.so", launch.KeyVariable + "=k", launch.LaterPrefix + "BASH_FUNC_module%%=() { :\n}", launch.URLVariable + "=u", "B=" + launch.LaterPrefix})
	if want := []string{"A=1", "LD_PRELOAD=/opt/lib.so", "BASH_FUNC_module%%=() { :\n}", "B=" + launch.LaterPrefix}; url != "u" || key != "k" || !slices.Equal(rest, want) {
		t.Errorf("%q %q %q, want %q", url, key, rest, want)
	}
}
