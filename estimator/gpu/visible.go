package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// VisibleDevices is the CUDA_VISIBLE_DEVICES that Slurm sets for a job with so many of these GPUs: numbers, or the UUIDs that the virtual GPU
// (native/profile.c) gives the slices.
func (p *Profile) VisibleDevices(devices int) string {
	words := make([]string, devices)
	for i := range words {
		if words[i] = strconv.Itoa(i); p.MIG != nil {
			words[i] = fmt.Sprintf("MIG-22222222-2222-2222-2222-2222222222%02x", 0x22+i)
		}
	}
	return strings.Join(words, ",")
}
