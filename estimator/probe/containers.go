package probe

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gresize/gresize/estimator/probe/sandbox"
)

// containerEnvironment is what Apptainer and Singularity are told by variables of their own, so that a container which they start has the virtual GPU in it: what to show there, and what to set in it even where it
// is to start without the environment of the job. add are the variables of the virtual GPU.
func containerEnvironment(env, add []string, libDir, filesDir, reportDir, shimDir string) []string {
	shown, first := []string{libDir, filesDir, reportDir}, []string{filepath.Join(libDir, "bin")}
	if shimDir != "" {
		shown, first = []string{libDir, sandbox.InsideDir}, []string{shimDir, first[0]}
	}
	if strings.ContainsAny(strings.Join(shown, ""), ",:") {
		return nil
	}
	var told []string
	// extend adds to what the job has said itself.
	extend := func(name, separator string, values []string) {
		if own := valueOf(env, name, ""); own != "" {
			values = append([]string{own}, values...)
		}
		told = append(told, name+"="+strings.Join(values, separator))
	}
	// A script that sets one of the two leaves the other. Apptainer reads Singularity's names, too, but none of which it finds its own.
	for _, name := range []string{"_BIND", "_BINDPATH"} {
		extend("SINGULARITY"+name, ",", shown)
		if valueOf(env, "APPTAINER"+name, "") != "" {
			extend("APPTAINER"+name, ",", shown)
		}
	}
	if shimDir != "" {
		// In the sandbox no program gets rights of its own, and no file system is served by a process: an image file is unpacked.
		told = append(told, "SINGULARITY_USERNS=1", "SINGULARITY_UNSQUASH=1")
	}
	for _, program := range []string{"SINGULARITYENV_", "APPTAINERENV_"} {
		extend(program+"PREPEND_PATH", ":", first)
		for _, kv := range add {
			switch name, _, _ := strings.Cut(kv, "="); name {
			case "PATH", "LD_LIBRARY_PATH", "PYTHONPATH": // the container's own lead to its libraries and modules; the virtual GPU does without
			default:
				told = append(told, program+kv)
			}
		}
	}
	return told
}

// containers are programs and options that start a container in which nothing is seen.
var containers = regexp.MustCompile(`(?m)(?:^|[\s/;&|"'(])(enroot|podman|docker|shifter|sarus|ch-run)\s|\s(--container(?:-image|-name)?)[=\s]`)

// containerOf is the first of them that the command or its script names; empty where there is none.
func containerOf(command []string, script []byte) string {
	for _, text := range []string{strings.Join(command, " ") + " ", string(script)} {
		if m := containers.FindStringSubmatch(text); m != nil {
			return m[1] + m[2]
		}
	}
	return ""
}

// imageFile are the programs that unpack an image file where there is no other way to its content.
var imageFile = regexp.MustCompile(`(?m)(?:^|[\s/;&|"'(])(apptainer|singularity)\s`)

// unpacked says what to do where there was no room for an image.
func unpacked(command []string, script []byte) string {
	for _, text := range []string{strings.Join(command, " ") + " ", string(script)} {
		if m := imageFile.FindStringSubmatch(text); m != nil {
			return ": the sandbox has to unpack an image file. A folder made of it (" + m[1] + " build --sandbox DIR IMAGE) is used as it lies"
		}
	}
	return ""
}
