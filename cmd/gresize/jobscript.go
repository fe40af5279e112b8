package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/internal/regular"
	"github.com/gresize/gresize/slurm/batch"
)

// submissionOf reads the command as a job of Slurm where it is one: `sbatch …`, a script with #SBATCH lines, and a script that is no program by itself, as sbatch takes it. It is nil for every other command.
func submissionOf(command []string) (*batch.Submission, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, nil // the run says that the folder is gone
	}
	words := command
	if filepath.Base(command[0]) == "sbatch" {
		words = command[1:]
	} else {
		path, err := exec.LookPath(command[0])
		program := err == nil
		if !program {
			path = command[0]
		}
		head, err := headOf(path)
		switch {
		case err != nil, program && !(bytes.HasPrefix(head, []byte("#!")) && batch.HasDirectives(head)):
			return nil, nil // a usual program, or one that is not there
		case !bytes.HasPrefix(head, []byte("#!")):
			return nil, noProgram(command[0])
		}
		words = append([]string{path}, command[1:]...)
	}
	s, err := batch.ReadSubmission(words, dir)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// noProgram says how a file is run that no #! line says it of.
func noProgram(name string) error {
	if strings.HasSuffix(name, ".py") {
		return fmt.Errorf("%s is no program by itself: gresize estimate -- python %s", name, name)
	}
	return fmt.Errorf("%s is no program by itself: name what runs it, such as bash %s, or begin it with a line such as #!/bin/bash", name, name)
}

// headOf is the begin of a file, as far as sbatch would look for its options.
func headOf(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, batch.MaxScriptBytes))
}

// takeSubmission has the flags run a job of Slurm as Slurm would start it, and returns the words that are left of the command: the script's arguments. gpusGiven says that the number of GPUs was given to us.
func (flags *estimateFlags) takeSubmission(s *batch.Submission, gpusGiven bool) ([]string, error) {
	if !gpusGiven {
		flags.gpus = max(1, s.GPUs)
	}
	if s.Array != nil {
		s.Array.JobID = batch.StandInJobID
		if task, err := strconv.ParseUint(os.Getenv("SLURM_ARRAY_TASK_ID"), 10, 31); err == nil {
			s.Array.Task = uint32(task)
		}
	}
	if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("sbatch: --chdir=%s: there is no such folder on this machine", s.Dir)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, errors.New("this machine does not say its name")
	}
	s.GPUs = flags.gpus
	flags.job = s
	flags.environment = s.StandInEnvironment(os.Environ(), host)
	flags.notes = append(flags.notes, asJob(s, gpusGiven))
	return s.Args, nil
}

// asJob says as what a script is run.
func asJob(s *batch.Submission, gpusGiven bool) string {
	text := fmt.Sprintf("run as sbatch would: %s, %s", quantity.Count(s.GPUs, "GPU"), quantity.Count(s.Tasks, "task"))
	if gpusGiven {
		text += " (the number of GPUs is that of --gpus)"
	}
	if s.Nodes > 1 {
		text += fmt.Sprintf(", one of %d nodes", s.Nodes)
	}
	if a := s.Array; a != nil {
		text += fmt.Sprintf(", task %d of an array of %d (SLURM_ARRAY_TASK_ID=N chooses another)", a.Task, a.Count)
	}
	return text
}
