package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/gresize/gresize/estimator/quantity"
	"github.com/gresize/gresize/estimator/trace"
)

// The words by which a command says that it has fewer GPUs than it wants, and that there is no network.
var (
	wantsMoreGPUs = regexp.MustCompile(`invalid device ordinal|NCCL.*[Dd]uplicate GPU detected|Duplicate GPU detected`)
	wantsNetwork  = regexp.MustCompile(`Temporary failure in name resolution|Name or service not known|Network is unreachable|[Cc]ould not resolve host|[Cc]ouldn't connect to 'https?://|` +
		`Failed to resolve '|outgoing traffic has been disabled|LocalEntryNotFoundError|OfflineModeIsEnabled`)
	processes = regexp.MustCompile(`^--?nproc[-_]per[-_]node(?:=(\d+))?$`)
)

// hints are ways out that a failed command's own words point to, and that only who called it can take.
func hints(m *trace.Manifest) (notes []string) {
	if m.Outcome != trace.Crashed {
		return nil
	}
	if wantsMoreGPUs.MatchString(m.OutputTail) {
		want := "N"
		if n := processesOf(m.Command); n > m.GPU.Devices {
			want = strconv.Itoa(n)
		}
		notes = append(notes, fmt.Sprintf("the command sees %s and wanted more: --gpus %s shows it as many", quantity.Count(m.GPU.Devices, "GPU"), want))
	}
	if m.Sandboxed && wantsNetwork.MatchString(m.OutputTail) {
		notes = append(notes, "there is no network in the sandbox: run the command's download once before, or the whole command with --no-sandbox")
	}
	return notes
}

// processesOf is how many processes on this node the command names to torchrun or its like; 0 where it does not.
func processesOf(command []string) int {
	for i, a := range command {
		found := processes.FindStringSubmatch(a)
		if found == nil {
			continue
		}
		number := found[1]
		if number == "" && i+1 < len(command) {
			number = command[i+1]
		}
		n, _ := strconv.Atoi(number)
		return n
	}
	return 0
}
