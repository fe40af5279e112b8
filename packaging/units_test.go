package packaging

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cameWith is the systemd in which each setting of our units came, by its NEWS and its manual pages; 0 stands for what was there in 2012. RHEL 8 has 239.
var cameWith = map[string]int{
	"After": 0, "CapabilityBoundingSet": 0, "Description": 0, "Documentation": 0, "ExecReload": 0, "ExecStart": 0, "ExecStartPre": 0, "Group": 0, "NotifyAccess": 0, "PrivateTmp": 0, "Restart": 0,
	"RestartSec": 0, "Type": 0, "UMask": 0, "User": 0, "WantedBy": 0, "WatchdogSec": 0, "NoNewPrivileges": 187, "SystemCallFilter": 187, "TimeoutStartSec": 188, "PrivateDevices": 209,
	"SystemCallArchitectures": 209, "SystemCallErrorNumber": 209, "RestrictAddressFamilies": 211, "RuntimeDirectory": 211, "RuntimeDirectoryMode": 211, "ProtectHome": 214, "ProtectSystem": 214,
	"StartLimitIntervalSec": 230, "MemoryDenyWriteExecute": 231, "RestrictRealtime": 231, "ProtectControlGroups": 232, "ProtectKernelModules": 232, "ProtectKernelTunables": 232, "RemoveIPC": 232,
	"RestrictNamespaces": 233, "LockPersonality": 235, "RuntimeDirectoryPreserve": 235, "StateDirectory": 235, "StateDirectoryMode": 235, "PrivateMounts": 239, "ProtectHostname": 242,
	"RestrictSUIDSGID": 242, "ProtectKernelLogs": 244, "ProtectClock": 245, "ProtectProc": 247,
}

// valuesCameWith are values that came later than their setting. Calls that its libseccomp cannot name, such as Landlock's, systemd leaves out of an allowing list and says so.
var valuesCameWith = map[string]int{
	"ProtectSystem=strict": 232, "SystemCallFilter=@system-service": 239, "SystemCallFilter=~@privileged @resources": 231, "SystemCallFilter=seccomp": 187,
	"SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self": 187,
}

const oldest = 239

// onlyTighter are the settings of which a systemd that does not know them says so in its journal, and goes on: without them the unit does the same, with less around it.
var onlyTighter = []string{"ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectProc", "RestrictSUIDSGID"}

// TestUnitsOnAnOldSystemd: what our units need, the systemd of RHEL 8 has.
func TestUnitsOnAnOldSystemd(t *testing.T) {
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%v %v", units, err)
	}
	for _, unit := range units {
		file, err := os.Open(unit)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		seen := map[string]bool{}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			line := lines.Text()
			name, _, assigned := strings.Cut(line, "=")
			if !assigned || strings.HasPrefix(line, "#") {
				continue
			}
			if seen[line] {
				t.Errorf("%s: %s is there twice", unit, line)
			}
			seen[line] = true
			release, known := cameWith[name]
			if !known {
				t.Errorf("%s: %s: with which systemd did it come?", unit, name)
			}
			if release > oldest && !slices.Contains(onlyTighter, name) {
				t.Errorf("%s: %s came with systemd %d, and RHEL 8 has %d", unit, name, release, oldest)
			}
			if release := valuesCameWith[line]; release > oldest {
				t.Errorf("%s: %s came with systemd %d, and RHEL 8 has %d", unit, line, release, oldest)
			}
			if name == "SystemCallFilter" || line == "ProtectSystem=strict" {
				if valuesCameWith[line] == 0 {
					t.Errorf("%s: %s: with which systemd did it come?", unit, line)
				}
			}
		}
	}
}
