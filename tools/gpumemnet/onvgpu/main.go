// Command onvgpu runs a command on the virtual GPU without the layer that would end it after some steps, for a tool that runs many
// small trainings in one process.
//
//	go run ./tools/gpumemnet/onvgpu [-gpu MODEL] [-lib build/lib] COMMAND [ARGUMENT...]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/vgpu"
)

func main() {
	model := flag.String("gpu", "a100-40", "GPU model")
	lib := flag.String("lib", "build/lib", "directory of the virtual GPU")
	flag.Parse()
	if err := run(*model, *lib, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "onvgpu:", err)
		os.Exit(1)
	}
}

func run(model, lib string, command []string) error {
	if len(command) == 0 {
		return fmt.Errorf("no command given")
	}
	profile, err := gpu.Load(model)
	if err != nil {
		return err
	}
	lib, err = filepath.Abs(lib)
	if err != nil {
		return err
	}
	native, err := os.CreateTemp("", "gresize-profile-")
	if err != nil {
		return err
	}
	defer os.Remove(native.Name())
	if err := profile.WriteNative(native); err != nil {
		return err
	}
	if err := native.Close(); err != nil {
		return err
	}
	env, err := vgpu.Environment(vgpu.Options{LibDir: lib, ProfilePath: native.Name(), WithoutPython: true}, os.Environ())
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
