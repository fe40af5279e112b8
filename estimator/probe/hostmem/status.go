package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// reportingName is how the Python layer calls a process while it writes down what the process was seen to need; the memory that the process has then
// follows, as a hexadecimal number of reportingUnit.
const (
	reportingName = "gresize:"
	reportingUnit = 64 << 10
)

// status is what /proc/PID/status says of a process. Shared pages are in the figures of each that shares them.
type status struct {
	name                             string
	parent                           int
	ownBytes, fileBytes, sharedBytes int64
	tableBytes                       int64
	highestBytes                     int64 // the most that was ever resident
}

func (s *status) residentBytes() int64 { return s.ownBytes + s.fileBytes + s.sharedBytes }

// plainBytes leaves files out: most of them are the kernel's to drop.
func (s *status) plainBytes() int64 { return s.ownBytes + s.sharedBytes + s.tableBytes }

// alive is false of a process that has ended, of which the parent has not yet taken notice.
func (s *status) alive() bool { return s.tableBytes > 0 }

// reporting says whether the process reports, and what it had when it began to.
func (s *status) reporting() (hadBytes int64, yes bool) {
	digits, yes := strings.CutPrefix(s.name, reportingName)
	if !yes {
		return 0, false
	}
	units, err := strconv.ParseUint(digits, 16, 28)
	return int64(units) * reportingUnit, err == nil
}

func (s *status) isReporting() bool {
	_, yes := s.reporting()
	return yes
}

func readStatus(pid int) (status, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}, false
	}
	return parseStatus(text), true
}

func parseStatus(text []byte) status {
	var s status
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		switch string(key) {
		case "Name":
			s.name = string(bytes.TrimSpace(value))
		case "PPid":
			if n, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil && n > 0 {
				s.parent = n
			}
		case "VmHWM":
			s.highestBytes = kibibytes(value)
		case "RssAnon":
			s.ownBytes += kibibytes(value)
		case "VmSwap": // it would be resident where memory is not short
			s.ownBytes += kibibytes(value)
		case "RssFile":
			s.fileBytes = kibibytes(value)
		case "RssShmem":
			s.sharedBytes = kibibytes(value)
		case "VmPTE":
			s.tableBytes = kibibytes(value)
		}
	}
	return s
}

// kibibytes is a value in bytes out of text that gives it in kB; 0 where there is none.
func kibibytes(text []byte) int64 {
	kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(text), []byte("kB")))), 10, 64)
	if err != nil || kib < 0 || kib >= 1<<40 {
		return 0
	}
	return kib << 10
}

// field is the value in bytes of a line of a file like /proc/meminfo; 0 where there is none.
func field(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte(name)); found {
			return kibibytes(rest)
		}
	}
	return 0
}

// sharedOfMachine is the shared memory of the whole machine.
func sharedOfMachine() int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return field(meminfo, "Shmem:")
}
