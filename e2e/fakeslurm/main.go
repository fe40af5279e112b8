// Fakeslurm stands in for scontrol, squeue and scancel where a test plays slurmctld: it
// hands its arguments to the socket "cluster" beside it and prints the answer.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run() (int, error) {
	connection, err := net.Dial("unix", filepath.Join(filepath.Dir(os.Args[0]), "cluster"))
	if err != nil {
		return 1, err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)); err != nil {
		return 1, err
	}
	var answer struct {
		Code        int
		Out, Stderr string
	}
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return 1, err
	}
	fmt.Print(answer.Out)
	fmt.Fprint(os.Stderr, answer.Stderr)
	return answer.Code, nil
}
